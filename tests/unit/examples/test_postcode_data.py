"""Data of the postcode example: the split by scan, envelopes, crops and the scoring of results."""

import io
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "postcode"))

from postcode.crops import SIDE, crop, true_crops
from postcode.envelopes import DIGITS, HEIGHT, WIDTH, Box, Envelope, compose, png
from postcode.locate import Components, opened, peaks
from postcode.pipeline import join
from postcode.read import coloured, digits, features, pixels
from postcode.split import HELD_OUT, held_out, training
from postcode.workload import Postcodes

pytestmark = pytest.mark.models
NOISE = np.random.default_rng(3).integers(256, size=(HEIGHT, WIDTH)).astype(np.uint8)


def an_envelope(seed: int = 3) -> Envelope:
    return compose(training(), np.random.default_rng(seed))


def test_no_scan_is_both_learnt_from_and_judged_by() -> None:
    ids = [*training().ids, *held_out().ids]
    assert sorted(ids) == list(range(1797))
    assert len(held_out().ids) == HELD_OUT


def test_every_digit_is_held_out_often_enough_to_be_judged() -> None:
    assert np.bincount(held_out().labels, minlength=10).min() >= 30


def test_the_same_seed_composes_the_same_envelope() -> None:
    one, other = an_envelope(), an_envelope()
    assert np.array_equal(one.image, other.image)
    assert (one.postcode, one.boxes) == (other.postcode, other.boxes)


@given(seed=st.integers(0, 2**32 - 1))
def test_an_envelope_has_its_digits_in_order_and_their_centres_on_the_paper(seed: int) -> None:
    envelope = an_envelope(seed)
    assert (envelope.image.shape, envelope.image.dtype) == ((HEIGHT, WIDTH), np.uint8)
    assert len(envelope.postcode) == len(envelope.boxes) == DIGITS
    xs = [box.x for box in envelope.boxes]
    assert xs == sorted(xs)
    assert all(0 < box.x < WIDTH and 0 < box.y < HEIGHT for box in envelope.boxes)


def test_an_envelope_survives_its_png() -> None:
    envelope = an_envelope()
    image = Image.open(io.BytesIO(png(envelope.image)))
    assert image.mode == "L"
    assert np.array_equal(np.asarray(image), envelope.image)


def test_a_crop_shows_ink_bright_and_paper_black() -> None:
    paper = np.full((HEIGHT, WIDTH), 220, dtype=np.uint8)
    paper[10:30, 40:44] = 60
    shown = crop(Image.fromarray(paper), Box(x=41.5, y=19.5, side=20))
    assert (shown.shape, shown.dtype) == ((SIDE, SIDE), np.uint8)
    assert (shown[8, 8], shown[8, 0], shown[8, 15]) == (255, 0, 0)


@pytest.mark.parametrize(
    ("payload", "sentence"),
    [
        (b"hello", "the payload of 5 bytes is no PNG or JPEG image"),
        ("text", "an envelope comes as PNG bytes, not as str"),
        (None, "an envelope comes as PNG bytes, not as NoneType"),
        (png(np.zeros((8, 9), np.uint8)), "the image is 9x8 pixels; envelopes are 160x40: scale"),
        (png(NOISE)[:900], "the payload of 900 bytes is no PNG or JPEG image"),
    ],
)
def test_a_payload_that_is_no_envelope_fails_alone(payload: Any, sentence: str) -> None:
    good = png(an_envelope().image)
    first, wrong, last = Components().predict([good, payload, good])
    assert isinstance(wrong, ValueError)
    assert str(wrong).startswith(sentence)
    assert [c.tolist() for c in first] == [c.tolist() for c in last]


def test_a_colour_image_is_read_as_grey() -> None:
    out = io.BytesIO()
    Image.fromarray(an_envelope().image).convert("RGB").save(out, format="PNG")
    assert np.array_equal(np.asarray(opened(out.getvalue())), an_envelope().image)


def test_a_network_that_is_sure_of_two_places_finds_two_boxes() -> None:
    maps = np.full((4, 10, 40), -9.0, dtype=np.float32)
    maps[1:] = 0
    maps[0, 4, 10], maps[0, 5, 20] = 3, 2
    maps[1, 4, 10], maps[2, 5, 20], maps[3, 5, 20] = 0.5, -0.25, np.log(1.2)
    found = [(b.x, b.y, round(b.side, 3)) for b in peaks(maps)]
    assert found == [(43.5, 17.5, 20.0), (81.5, 20.5, 24.0)]


def test_readers_get_crops_in_the_form_their_model_wants() -> None:
    batch = true_crops(an_envelope(), np.random.default_rng(0), jitter=0)
    forms = (pixels(batch).shape, coloured(batch).shape, features(batch).shape)
    assert forms == ((5, 1, 16, 16), (5, 3, 32, 32), (5, 64))
    with pytest.raises(ValueError, match=r"a crop is an array of 16x16 pixels, not \(8, 8\)"):
        pixels([np.zeros((8, 8), np.uint8)])
    with pytest.raises(ValueError, match="not str"):
        features(["7"])


def test_the_best_score_is_the_digit() -> None:
    assert digits(np.eye(10)[[7, 0]]) == ["7", "0"]


def test_a_digit_without_an_answer_is_a_question_mark() -> None:
    assert join(["1", None, "3"]) == "1?3"
    assert join([]) == ""


@pytest.mark.parametrize(
    ("result", "right"),
    [("12345", 5), ("1234", 4), ("2345", 0), ("12?45", 4), ("123456", 5), ("", 0), (None, 0)],
)
def test_digits_count_where_they_are_right_at_their_place(result: Any, right: int) -> None:
    assert Postcodes().score(result, "12345") == (right, 5)


def test_the_workload_is_the_same_for_the_same_seed() -> None:
    def some(seed: int) -> list[tuple[bytes, str]]:
        return list(itertools.islice(Postcodes().queries(np.random.default_rng(seed)), 3))

    assert some(1) == some(1)
    assert some(1) != some(2)


def test_perfect_crops_locate_perfectly_and_a_missing_one_shifts_the_rest(
    rng: np.random.Generator,
) -> None:
    workload = Postcodes()
    _, (truth,) = workload.task_inputs("locate", 1, rng)
    perfect = [shown for shown, _ in truth]
    assert workload.task_score("locate", perfect, truth) == 1.0
    assert workload.task_score("locate", [], truth) == 0.0
    assert workload.task_score("locate", ValueError("no image"), truth) == 0.0
    shifted = [truth[i][1] == truth[i + 1][1] for i in range(4)]
    assert workload.task_score("locate", perfect[1:], truth) == sum(shifted) / 5


def test_a_task_gets_as_many_inputs_as_asked_for(rng: np.random.Generator) -> None:
    inputs, truths = Postcodes().task_inputs("read", 7, rng)
    assert (len(inputs), len(truths), inputs[0].shape) == (7, 7, (16, 16))
    assert Postcodes().task_score("read", truths[0], truths[0]) == 1.0
