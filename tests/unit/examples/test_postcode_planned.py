"""Operators with knobs of the postcode example."""

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.config.pipeline_file import make_importable, read_pipeline_file

PLANNED = Path(__file__).parents[3] / "examples" / "postcode" / "planned.yaml"
pytestmark = pytest.mark.models


@pytest.fixture
def planned() -> Any:
    make_importable(PLANNED)
    from postcode import planned

    return planned


def an_envelope() -> bytes:
    from postcode.workload import Postcodes

    return next(Postcodes().queries(np.random.default_rng(3)))[0]


def test_864_configurations_on_three_tiers_with_the_scan_at_home() -> None:
    sessions = read_pipeline_file(PLANNED).sessions
    assert sessions is not None
    assert (sessions.space.configuration_count, sessions.space.plans) == (864, 7776)
    assert sessions.space.placed(8)["scan"] == "handheld"


def test_a_scan_is_smaller_in_pixels_and_bytes_and_is_enlarged_again(planned: Any) -> None:
    from PIL import Image

    payload = an_envelope()
    (whole,), (half,) = (planned.Scan(s, "none").predict([payload])[0] for s in (1.0, 0.5))
    assert Image.open(io.BytesIO(half)).size == (80, 20)
    assert len(half) < len(whole) / 2
    assert Image.open(io.BytesIO(planned.enlarged(half))).size == (160, 40)


def test_non_envelope_is_refused_by_scan_and_passed_through_by_enlarged(planned: Any) -> None:
    (refused,) = planned.Scan(0.5, "median").predict([b"junk"])
    assert isinstance(refused, ValueError)
    assert planned.enlarged(b"junk") == b"junk"


@pytest.mark.parametrize("wrong", [{"scale": 0.0}, {"scale": 1.5}, {"denoise": "blur"}])
def test_knobs_out_of_range_are_refused(planned: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is"):
        planned.Scan(**{"scale": 1.0, "denoise": "none", **wrong})


def test_crops_have_the_side_that_is_asked_for(planned: Any) -> None:
    payload = planned.Scan(1.0, "none").predict([an_envelope()])[0]
    crops = planned.Locate("postcode.locate:Components", side=8).predict(payload)[0]
    assert crops
    assert {crop.shape for crop in crops} == {(8, 8)}
    assert planned.resized(crops[0], 16).shape == (16, 16)


def test_one_vote_is_the_reader_alone_and_more_votes_average(planned: Any) -> None:
    weights = str(PLANNED.parent / "weights" / "read-mlp.onnx")
    arguments = {"before": "postcode.read:pixels"}

    def read(votes: int) -> list[str]:
        operator = planned.Read(
            "operators.models.onnx_model:OnnxModel", votes, weights, arguments=arguments
        )
        operator.load("cpu")
        return operator.predict(crops)

    crops = planned.Locate("postcode.locate:Components", side=16).predict(
        planned.Scan(1.0, "none").predict([an_envelope()])[0]
    )[0]
    assert all(digit in "0123456789" for digit in read(1) + read(9))
    assert len(read(3)) == len(crops)
    assert "postcode" in sys.modules


def test_scores_become_probabilities(planned: Any) -> None:
    logits, shares = np.array([[1.0, -2.0, 3.0]]), np.array([[0.2, 0.3, 0.5]])
    for found in (logits, shares):
        (row,) = planned.scores(found)
        assert row.sum() == pytest.approx(1.0)
        assert row.argmax() == found.argmax()
