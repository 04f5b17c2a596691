"""Locate the digits: operators that take envelopes as PNG and return crops, from left to right."""

import io
from typing import Any

import numpy as np
from PIL import Image, ImageFilter, UnidentifiedImageError
from scipy import ndimage

from operators.models.torch_module import TorchModule
from postcode.crops import crop
from postcode.envelopes import HEIGHT, WIDTH, Box

CELL = 4  # pixels a side; a network's maps have one value per cell
UNIT_SIDE = 20.0  # pixels; networks give sides relative to it
MARGIN = 1.12  # a digit's square over the height of its dark patch
TOUCHING = np.ones((3, 3), dtype=bool)  # corners count, for thin strokes
SURE = 0.35  # a digit's centre is where the map says so with at least this


class Components:
    """Connected dark patches of a digit's size; touching digits count as one, and get lost."""

    def load(self, device: str) -> None:
        """Nothing to load; SciPy runs on the CPU, whatever the device."""

    def predict(self, batch: list[Any]) -> list[Any]:
        """Crops for each payload, or a ``ValueError`` in the place of one that is no envelope."""
        return [
            image if isinstance(image, ValueError) else _crops(image, patches(image))
            for image in map(opened, batch)
        ]


class Heatmap:
    """A network that maps the centres and sizes of digits (``postcode.networks:DigitMap``)."""

    libraries = TorchModule.libraries  # imported before the worker serves

    def __init__(self, weights: str, width: int, depth: int) -> None:
        self._model = TorchModule(
            module="postcode.networks:DigitMap",
            module_arguments={"width": width, "depth": depth},
            weights=weights,
        )

    def load(self, device: str) -> None:
        """Loads the network onto ``device``."""
        self._model.load(device)

    def predict(self, batch: list[Any]) -> list[Any]:
        """Crops for each payload, or a ``ValueError`` in the place of one that is no envelope."""
        images = [opened(payload) for payload in batch]
        good = [image for image in images if not isinstance(image, ValueError)]
        maps = iter(self._model.infer(inked(np.stack([*map(np.asarray, good)]))) if good else ())
        return [
            image if isinstance(image, ValueError) else _crops(image, peaks(next(maps)))
            for image in images
        ]


def opened(payload: Any) -> Image.Image | ValueError:
    """The payload as a greyscale image, or why it is none."""
    if not isinstance(payload, bytes):
        return ValueError(f"an envelope comes as PNG bytes, not as {type(payload).__name__}")
    try:
        image = Image.open(io.BytesIO(payload), formats=("PNG", "JPEG")).convert("L")
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError):
        return ValueError(f"the payload of {len(payload)} bytes is no PNG or JPEG image")
    if image.size != (WIDTH, HEIGHT):
        width, height = image.size
        return ValueError(
            f"the image is {width}x{height} pixels; envelopes are {WIDTH}x{HEIGHT}: scale it first"
        )
    return image


def inked(images: np.ndarray) -> np.ndarray:
    """Images (n, height, width) uint8 as a network's input: (n, 1, ...) float32, paper at 0."""
    paper = np.sort(images.reshape(len(images), -1), axis=1)[:, images[0].size // 2]
    ink = paper[:, None, None].astype(np.float32) - images
    return (ink / 64.0)[:, None]


def patches(image: Image.Image) -> list[Box]:
    """The boxes of connected dark patches that are as large as a digit, left to right."""
    smooth = image.filter(ImageFilter.BoxBlur(1))
    shades = np.cumsum(smooth.histogram())
    paper, dark = np.searchsorted(shades, [shades[-1] // 2, shades[-1] // 50])
    labels, _ = ndimage.label(np.asarray(smooth) < paper - 0.45 * (paper - dark), TOUCHING)
    boxes = [
        Box(
            x=(columns.start + columns.stop - 1) / 2,
            y=(lines.start + lines.stop - 1) / 2,
            side=MARGIN * (lines.stop - lines.start),
        )
        for lines, columns in ndimage.find_objects(labels)
        if 11 <= lines.stop - lines.start <= 32 and 4 <= columns.stop - columns.start <= 36
    ]
    return sorted(boxes, key=lambda box: box.x)


def peaks(maps: np.ndarray) -> list[Box]:
    """The boxes that a network's maps (4, rows, columns) show, left to right.

    A postcode is one line of writing, so a column of cells holds one digit at most.
    """
    rows, columns = maps[0].argmax(axis=0), np.arange(maps.shape[2])
    right, down, side = maps[1:, rows, columns]
    heat = 1 / (1 + np.exp(-maps[0, rows, columns]))
    around = np.pad(heat, 1)
    top = (heat >= SURE) & (heat >= around[:-2]) & (heat > around[2:])
    return [
        Box(
            x=float((c + 0.5 + right[c]) * CELL - 0.5),
            y=float((rows[c] + 0.5 + down[c]) * CELL - 0.5),
            side=float(np.exp(side[c])) * UNIT_SIDE,
        )
        for c in np.flatnonzero(top)
    ]


def _crops(image: Image.Image, boxes: list[Box]) -> list[np.ndarray]:
    return [crop(image, box) for box in boxes]
