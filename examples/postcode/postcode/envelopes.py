"""Envelopes: scanned digits written as a postcode, with slant, clutter and noise.

An envelope is an 8-bit greyscale image, dark ink on light paper, ``HEIGHT`` x ``WIDTH`` pixels.
"""

import io
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw
from scipy import ndimage

from postcode.split import Scans

HEIGHT = 40
WIDTH = 160
DIGITS = 5


@dataclass(frozen=True, slots=True)
class Box:
    """The place of a digit: its centre and the side of its square, in pixels."""

    x: float
    y: float
    side: float


@dataclass(frozen=True, slots=True)
class Envelope:
    """An image (HEIGHT, WIDTH) uint8 and what is written on it, left to right."""

    image: np.ndarray
    postcode: str
    boxes: tuple[Box, ...]


def compose(scans: Scans, rng: np.random.Generator) -> Envelope:
    """An envelope with ``DIGITS`` of the scans, drawn at random."""
    chosen = rng.integers(len(scans.labels), size=DIGITS)
    ink = np.zeros((HEIGHT, WIDTH), dtype=np.float32)
    boxes = _write(ink, scans.images[chosen], rng)
    np.maximum(ink, _clutter(boxes, rng), out=ink)
    return Envelope(
        image=_photographed(ink, rng),
        postcode="".join(str(scans.labels[i]) for i in chosen),
        boxes=boxes,
    )


def png(image: np.ndarray) -> bytes:
    """The image as PNG."""
    out = io.BytesIO()
    Image.fromarray(image).save(out, format="PNG", compress_level=1)
    return out.getvalue()


def _write(ink: np.ndarray, scans: np.ndarray, rng: np.random.Generator) -> tuple[Box, ...]:
    """Puts the digits down from left to right, some touching; returns their boxes."""
    size = rng.uniform(17, 25)
    slant = rng.normal(0, 0.18)
    baseline = rng.uniform(-4, 4)
    spacing = rng.uniform(0.71, 1.02)
    sides = size * rng.uniform(0.8, 1.2, DIGITS)
    steps = sides * spacing * rng.uniform(0.9, 1.1, DIGITS)
    x = rng.uniform(2, max(3.0, WIDTH - steps.sum() - 2)) + steps[0] / 2
    boxes = []
    for i in range(DIGITS):
        y = HEIGHT / 2 + baseline + rng.uniform(-2, 2)
        box = Box(float(x), float(y), float(sides[i]))
        _stamp(ink, _slanted(scans[i], box, slant + rng.normal(0, 0.08)), box)
        boxes.append(box)
        x += (steps[i] + steps[min(i + 1, DIGITS - 1)]) / 2
    return tuple(boxes)


def _slanted(scan: np.ndarray, box: Box, slant: float) -> np.ndarray:
    """The scan drawn at the box's size, sheared by ``slant``, in a patch twice as wide."""
    out = int(np.ceil(box.side)) + 1
    scale = 8 / box.side
    matrix = np.array([[scale, 0.0], [slant * scale, scale]])
    middle = np.array([(out - 1) / 2, (2 * out - 1) / 2])
    shift = np.array([3.5, 3.5]) - matrix @ middle
    return ndimage.affine_transform(
        scan.astype(np.float32), matrix, shift, output_shape=(out, 2 * out), order=1
    )


def _stamp(ink: np.ndarray, patch: np.ndarray, box: Box) -> None:
    """Lays the patch on the paper with its middle at the box's, as far as it is on the paper."""
    height, width = patch.shape
    top, left = round(box.y - height / 2), round(box.x - width / 2)
    y0, x0 = max(top, 0), max(left, 0)
    y1, x1 = min(top + height, HEIGHT), min(left + width, WIDTH)
    here = ink[y0:y1, x0:x1]
    np.maximum(here, patch[y0 - top : y1 - top, x0 - left : x1 - left], out=here)


def _clutter(boxes: tuple[Box, ...], rng: np.random.Generator) -> np.ndarray:
    """Strokes of a pen, specks, and scribbles beside the postcode, as ink."""
    sheet = Image.new("L", (WIDTH, HEIGHT))
    draw = ImageDraw.Draw(sheet)
    for _ in range(rng.poisson(0.6)):
        x, y = rng.uniform(0, WIDTH), rng.uniform(0, HEIGHT)
        length, angle = rng.uniform(10, 50), rng.normal(0, 0.5)
        end = (x + length * np.cos(angle), y + length * np.sin(angle))
        draw.line((x, y, *end), fill=int(rng.integers(90, 220)), width=1)
    for _ in range(rng.poisson(6)):
        x, y, r = rng.uniform(0, WIDTH), rng.uniform(0, HEIGHT), rng.uniform(0.3, 1.4)
        draw.ellipse((x - r, y - r, x + r, y + r), fill=int(rng.integers(80, 220)))
    first, last = boxes[0], boxes[-1]
    for low, high in ((0, first.x - first.side / 2), (last.x + last.side / 2, WIDTH)):
        if high - low > 20 and rng.random() < 0.06:
            _scribble(draw, rng.uniform(low + 8, high - 8), rng)
    return np.asarray(sheet, dtype=np.float32)


def _scribble(draw: ImageDraw.ImageDraw, x: float, rng: np.random.Generator) -> None:
    """A mark as large as a digit that is none: a few strokes between random points."""
    points = rng.uniform((x - 7, 9), (x + 7, HEIGHT - 9), (int(rng.integers(3, 6)), 2))
    draw.line([tuple(point) for point in points], fill=int(rng.integers(120, 240)), width=2)


def _photographed(ink: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Ink of some darkness on paper in uneven light, with noise."""
    paper = rng.uniform(190, 240)
    light = np.linspace(-1, 1, WIDTH, dtype=np.float32) * rng.uniform(-25, 25)
    darkness = rng.uniform(0.35, 0.75)
    noise = rng.standard_normal(ink.shape, dtype=np.float32) * rng.uniform(6, 28)
    return np.clip(paper + light - darkness * ink + noise, 0, 255).astype(np.uint8)
