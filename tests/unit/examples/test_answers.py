"""The question-answering example: what its operators find, choose and write."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Sized
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.config.profile_files import load_profile
from operators.models.loading import load_operator

EXAMPLE = Path(__file__).parents[3] / "examples" / "answers"
GRACE = "how long behind the deadline egress waits for the rest of a query"


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch) -> PipelineFile:
    monkeypatch.setattr(sys, "path", list(sys.path))
    return read_pipeline_file(EXAMPLE / "pipeline.yaml")


def operator(file: PipelineFile, key: str) -> Any:
    """Return the loaded operator of a variant."""
    (variant,) = (v for task in file.pipeline.tasks for v in task.variants if v.key == key)
    made: Any = load_operator(variant)
    made.load("cpu")
    return made


def test_a_misspelt_word_is_found_by_its_letters_only(file: PipelineFile) -> None:
    (whole,), (letters,) = (
        operator(file, key).predict([b"which has behidn egress waits"])[0]
        for key in ("retrieve/words", "retrieve/letters")
    )
    assert operator(file, "rerank/first").predict([letters])[0] == [Sized(GRACE, size=13)]
    (misspelt,) = operator(file, "retrieve/words").predict([b"behidn"])[0]
    (found,) = operator(file, "retrieve/letters").predict([b"behidn"])[0]
    assert whole["passages"][0] == letters["passages"][0] == found["passages"][0]
    assert misspelt["passages"] == list(range(8))  # in their order: no word is known


def test_an_item_for_generate_is_as_large_as_what_will_be_written(file: PipelineFile) -> None:
    (found,) = operator(file, "retrieve/letters").predict([b"what is grace"])[0]
    for key in ("rerank/first", "rerank/trees"):
        ((item,),) = operator(file, key).predict([found])
        assert item == Sized(GRACE, size=13), key


def test_the_workload_makes_sized_items_for_generate_alone(file: PipelineFile) -> None:
    from answers.workload import Questions

    rng = np.random.default_rng(3)
    for size in (1, 2, 31):
        made = Questions().sized_inputs("generate", size, rng)
        assert {len(text.split()) for text in made} == {size}
    assert Questions().sized_inputs("rerank", 4, rng) == []


def test_every_passage_fits_the_writer(file: PipelineFile) -> None:
    from answers.passages import LONGEST, passages

    assert max(len(text.split()) for _, text in passages()) <= LONGEST
    assert file.pipeline.size is not None
    assert file.pipeline.size.most == LONGEST


def test_the_committed_profile_is_of_these_weights_and_grows_with_the_words(
    file: PipelineFile,
) -> None:
    entries = {entry.key: entry for entry in load_profile(file).entries}
    assert set(entries) == {v.key for task in file.pipeline.tasks for v in task.variants}
    judged = json.loads((EXAMPLE / "weights" / "accuracy.json").read_text())
    rows = {row.batch: row.p50_s for row in entries["generate/llama"].latency}
    assert list(rows) == [1, 2, 4, 8, 16, 31]
    assert rows[31] > 4 * rows[1]  # word by word
    for key, right in judged.items():
        assert entries[key].accuracy == pytest.approx(right, abs=0.05), key
    assert {row.batch for row in entries["rerank/trees"].latency} == {1}


@pytest.mark.models
def test_the_writer_repeats_passages_to_their_end(file: PipelineFile) -> None:
    from answers.passages import passages

    texts = [text for _, text in passages()][::4]
    judged = json.loads((EXAMPLE / "weights" / "accuracy.json").read_text())
    written = operator(file, "generate/llama").predict(texts)
    assert judged["generate/llama"] == 1.0
    assert written == texts
