"""A client in place of every Kafka client that a transport makes."""

import pytest

from streams.kafka import sender, transport
from streams.kafka.reading import partition_reader


def replace_clients(monkeypatch: pytest.MonkeyPatch, client: object) -> None:
    """Let transports make ``client`` in place of their consumers and producers."""
    for module, names in (
        (transport, ("consumer", "report_producer")),
        (partition_reader, ("consumer",)),
        (sender, ("producer",)),
    ):
        for name in names:
            monkeypatch.setattr(module, name, lambda *_, **__: client)
