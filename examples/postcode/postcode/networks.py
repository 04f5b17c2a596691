"""The torch networks of this project; their weights are trained by ``postcode.train``."""

import torch
from torch import nn


class Perceptron(nn.Module):
    """Two layers on the bare pixels: crops (n, 1, 16, 16) to scores (n, 10)."""

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(256, hidden), nn.ReLU(), nn.Linear(hidden, 10)
        )

    def forward(self, crops: torch.Tensor) -> torch.Tensor:
        return self.layers(crops)


class Convolutional(nn.Module):
    """Two blocks of convolutions: crops (n, 1, 16, 16) to scores (n, 10)."""

    def __init__(self, width: int = 32, depth: int = 2) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *_block(1, width, depth),
            nn.MaxPool2d(2),
            *_block(width, 2 * width, depth),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.Linear(2 * width * 16, 10),
        )

    def forward(self, crops: torch.Tensor) -> torch.Tensor:
        return self.layers(crops)


class Committee(nn.Module):
    """A ``Convolutional`` that, once trained, looks nine times: at the crop and at its shifts.

    Averaging what it sees at shifts by one pixel costs nine times one look and makes up for a
    locator that was a little off.
    """

    def __init__(self, width: int = 32, depth: int = 2) -> None:
        super().__init__()
        self.member = Convolutional(width, depth)

    def forward(self, crops: torch.Tensor) -> torch.Tensor:
        if self.training:
            return self.member(crops)
        height, width = crops.shape[2:]
        wide = nn.functional.pad(crops, (1, 1, 1, 1))
        views = [wide[..., y : y + height, x : x + width] for y in range(3) for x in range(3)]
        scores = self.member(torch.cat(views)).softmax(dim=1)
        return scores.reshape(len(views), len(crops), -1).mean(dim=0)


class Member(nn.Module):
    """The network of a ``Committee`` at one look, with the committee's weights."""

    def __init__(self, width: int = 32, depth: int = 2) -> None:
        super().__init__()
        self.member = Convolutional(width, depth)

    def forward(self, crops: torch.Tensor) -> torch.Tensor:
        return self.member(crops)


class DigitMap(nn.Module):
    """Locate digits: images (n, 1, height, width) to maps (n, 4, height / 4, width / 4).

    The maps are: a digit's centre lies in this cell (a logit), how far right and down of the
    cell's middle (in cells), and the logarithm of its side over 20 pixels.
    """

    def __init__(self, width: int = 8, depth: int = 2) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            *_block(2 * width, 2 * width, depth),
            nn.Conv2d(2 * width, 4, 1),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)


def _block(channels: int, width: int, depth: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for i in range(depth):
        layers += [
            nn.Conv2d(channels if i == 0 else width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        ]
    return layers
