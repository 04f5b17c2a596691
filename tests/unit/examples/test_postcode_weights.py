"""The committed weights of the postcode example reach their recorded accuracy."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "postcode"))

from postcode.envelopes import Box
from postcode.learning import TRAINERS, target
from postcode.locate import peaks
from postcode.train import RECORD, WEIGHTS, measured, variants

from operators.models.loading import load_operator

pytestmark = pytest.mark.models

RECORDED: dict[str, float] = json.loads(RECORD.read_text())
SAMPLE = {"locate": 150, "read": 500}


def test_every_variant_has_its_accuracy_recorded() -> None:
    assert list(RECORDED) == list(variants())


def test_every_variant_with_weights_can_be_trained_again() -> None:
    assert sorted(TRAINERS) == sorted(k for k, v in variants().items() if "weights" in v.arguments)


def test_all_weights_together_stay_small() -> None:
    assert sum(file.stat().st_size for file in WEIGHTS.iterdir()) <= 6_000_000


@pytest.mark.parametrize("key", list(RECORDED))
def test_committed_weights_reach_the_recorded_accuracy(key: str) -> None:
    variant = variants()[key]
    n, p = SAMPLE[variant.task], RECORDED[key]
    # Digits of one envelope are found or lost together, so the envelope is the unit of the spread
    slack = 4 * np.sqrt(p * (1 - p) / n) + 0.005
    assert measured(variant, n) == pytest.approx(p, abs=slack)


@pytest.mark.parametrize("task", ["locate", "read"])
def test_the_variants_of_a_task_span_ten_points_of_accuracy(task: str) -> None:
    values = [value for key, value in RECORDED.items() if key.startswith(f"{task}/")]
    assert max(values) - min(values) >= 0.1


@pytest.mark.parametrize("name", ["net", "deep"])
def test_a_network_fails_for_a_bad_payload_alone(name: str) -> None:
    operator: Any = load_operator(variants()[f"locate/{name}"])
    operator.load("cpu")
    assert [str(output) for output in operator.predict([b"", b"abc"])] == [
        "the payload of 0 bytes is no PNG or JPEG image",
        "the payload of 3 bytes is no PNG or JPEG image",
    ]


def test_what_a_network_learns_to_draw_is_read_back_as_the_same_boxes() -> None:
    boxes = (Box(30.25, 20.0, 18.0), Box(52.0, 17.5, 25.0), Box(70.75, 22.0, 20.0))
    maps = target(boxes, 40, 160)
    maps[0] = np.log(maps[0] + 1e-6) - np.log(1 - maps[0] + 1e-6)
    assert np.allclose(
        [(b.x, b.y, b.side) for b in peaks(maps)], [(b.x, b.y, b.side) for b in boxes], atol=1e-3
    )
