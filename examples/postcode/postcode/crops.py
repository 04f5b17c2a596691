"""Crops: one digit of an envelope as (SIDE, SIDE) uint8, bright ink on black."""

import numpy as np
from PIL import Image

from postcode.envelopes import Box, Envelope

SIDE = 16
JITTER = 0.7  # pixels by which locators miss a digit's centre, as measured on ours


def crop(image: Image.Image, box: Box) -> np.ndarray:
    """Return the contents of the box, bright on black, stretched to the full range."""
    scale = box.side / SIDE
    left, top = box.x - box.side / 2, box.y - box.side / 2
    paper = 255  # beyond the edge
    cut = image.transform(
        (SIDE, SIDE),
        Image.Transform.AFFINE,
        (scale, 0, left, 0, scale, top),
        Image.Resampling.BILINEAR,
        fillcolor=paper,
    )
    ink = 255.0 - np.asarray(cut, dtype=np.float32)
    low = float(np.sort(ink, axis=None)[SIDE * SIDE // 4])  # the paper: most of a crop is bare
    high = max(float(ink.max()), low + 1)
    return (np.clip((ink - low) / (high - low), 0, 1) * 255).astype(np.uint8)


def true_crops(envelope: Envelope, rng: np.random.Generator, jitter: float) -> list[np.ndarray]:
    """The envelope's digits, cropped as a locator would that is off by ``jitter`` pixels or so."""
    image = Image.fromarray(envelope.image)
    return [crop(image, _jittered(box, rng, jitter)) for box in envelope.boxes]


def _jittered(box: Box, rng: np.random.Generator, jitter: float) -> Box:
    dx, dy, grow = rng.normal(0, jitter, 3)
    return Box(box.x + dx, box.y + dy, box.side * float(np.exp(0.06 * grow)))
