"""Two stages that do nothing, on Headrace."""


def forward(batch):
    return [[payload] for payload in batch]


def echo(batch):
    return [payload.decode() for payload in batch]
