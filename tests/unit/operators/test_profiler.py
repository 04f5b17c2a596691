"""The profiler scores as serving would; a cached prefix changes seconds but no score."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from control.policies.compass.search.prefix_cache import PrefixCache
from control.problem.space import Knob, Space, Stage
from operators.join import as_list
from operators.profiler import Profiler, Sample, block_outputs, in_batches
from schemas.pipeline import Pipeline, Policy, Task, Variant
from schemas.records import Value

SPACE = Space(
    stages=(
        Stage("split", "", ("t",)),
        Stage("low", "split", ("t",)),
        Stage("up", "split", ("t",)),
    ),
    knobs=(Knob("split", "most", ("2", "9")), Knob("low", "case", ("low", "title"))),
    tiers=("t",),
)
TASKS = tuple(
    Task(name=name, variants=(Variant(task=name, name="v", operator="m:C"),), children=children)
    for name, children in (("split", ("low", "up")), ("low", ()), ("up", ()))
)
PIPELINE = Pipeline(
    name="p", slo_s=1.0, tasks=TASKS, policies=(Policy(name="static"),), policy="static"
)
SAMPLES = [Sample(n, text, text) for n, text in enumerate(("ab cd", "e f g", "boom"))]
CASES = {"low": str.lower, "title": str.title}


class Counting:
    """A runner of stages of the space above that counts the calls by stage."""

    def __init__(self) -> None:
        self.calls = [0, 0, 0]

    def __call__(self, stage: int, c: int, values: Sequence[Value]) -> tuple[list[Any], float]:
        self.calls[stage] += 1
        named = SPACE.named(c)
        outputs: list[Any] = []
        for value in map(str, values):
            if value == "boom":
                outputs.append(ValueError("boom"))
            elif stage == 0:
                words = value.split()[: int(named["split.most"])]
                outputs.append({"low": words, "up": words[:1]})
            else:
                outputs.append(CASES[named["low.case"]](value) if stage == 1 else value.upper())
        return outputs, 0.1 * len(values)


def a_profiler(cache_bytes: int = 10**6, reference: int | None = None) -> Profiler:
    def judge(result: Any, truth: Any) -> tuple[float, float]:
        wanted = [*truth.split(), truth.split()[0].upper()]
        return sum(r == w for r, w in zip(result, wanted, strict=False)), len(wanted)

    def agreement(result: Any, truth: Any) -> tuple[float, float]:
        return sum(r == w for r, w in zip(result, truth, strict=False)), len(truth)

    chosen = judge if reference is None else agreement
    return Profiler(PIPELINE, SPACE, PrefixCache(cache_bytes), as_list, chosen, reference)


def test_a_tree_is_run_and_scored_and_failures_score_nothing() -> None:
    found = a_profiler().profile(0, "s", SAMPLES, Counting())
    assert found.scores == [1.0, pytest.approx(0.5), 0.0]
    assert [cost.seconds for cost in found.stages] == pytest.approx([0.3, 0.4, 0.2])
    assert [cost.cached for cost in found.stages] == [0, 0, 0]
    assert found.input_bytes == 14
    assert found.stages[2].bytes == 3  # AB and E


def test_configurations_share_the_outputs_of_a_common_prefix() -> None:
    profiler, run = a_profiler(), Counting()
    first = profiler.profile(0, "s", SAMPLES, run)
    again = profiler.profile(1, "s", SAMPLES, run)  # the same split, another case
    assert run.calls == [3, 6, 3]
    assert [cost.cached for cost in again.stages] == [3, 0, 3]
    assert again.spent_s == pytest.approx(0.4)
    assert again.stages[0].seconds == pytest.approx(first.stages[0].seconds)
    profiler.profile(0, "another set", SAMPLES, run)
    assert run.calls == [6, 9, 6]


def test_scores_are_equal_with_and_without_a_cache() -> None:
    with_it, without = a_profiler(), a_profiler(cache_bytes=0)
    for configuration in (0, 1, 2, 3, 0):
        pair = [p.profile(configuration, "s", SAMPLES, Counting()) for p in (with_it, without)]
        assert pair[0].scores == pair[1].scores
        assert np.allclose([c.seconds for c in pair[0].stages], [c.seconds for c in pair[1].stages])


def test_a_batch_that_fails_runs_item_by_item() -> None:
    def predict(values: list[Value]) -> list[Any]:
        return [10 // int(str(value)) for value in values]

    good, bad, other = block_outputs(predict, [5, 0, 2])
    assert (good, other) == (2, 5)
    assert isinstance(bad, ZeroDivisionError)
    assert block_outputs(predict, []) == []
    assert block_outputs(lambda values: [1], [1, 2]) == [1, 1]
    short = block_outputs(lambda values: [], [1, 2])
    assert [str(each) for each in short] == ["0 outputs for 1 inputs"] * 2


def test_an_operator_that_changes_its_inputs_changes_no_sample() -> None:
    def predict(values: list[Any]) -> list[Any]:
        for value in values:
            value["text"] = value.pop("raw")
        return [value["text"][0] for value in values]

    samples: list[Value] = [{"raw": "a"}, {"raw": ""}]
    first, refused = block_outputs(predict, samples)
    assert (first, type(refused)) == ("a", IndexError)
    assert samples == [{"raw": "a"}, {"raw": ""}]


def test_values_run_in_batches_of_the_size_that_serves() -> None:
    sizes: list[int] = []

    def predict(values: list[Value]) -> list[Value]:
        sizes.append(len(values))
        return values

    assert in_batches(predict, list(range(7)), 3) == list(range(7))
    assert in_batches(predict, [], 3) == []
    assert sizes == [3, 3, 1]


@pytest.mark.parametrize("cache_bytes", [0, 10**6])
def test_answers_are_compared_with_those_of_a_reference_whose_seconds_are_spent(
    cache_bytes: int,
) -> None:
    titles = SPACE.index_of({"split.most": "9", "low.case": "title"})
    lows = SPACE.index_of({"split.most": "9", "low.case": "low"})
    assert titles is not None
    assert lows is not None
    samples = [Sample(number, text) for number, text in enumerate(("Ab", "Ab Cd", "boom"))]
    alone = a_profiler(cache_bytes).profile(
        lows, "s", [Sample(s.number, s.payload, s.payload) for s in samples], Counting()
    )
    found = a_profiler(cache_bytes, reference=titles).profile(lows, "s", samples, Counting())
    # "ab" is not "Ab", "AB" is; neither has an answer for the last one.
    assert found.scores == [0.5, pytest.approx(1 / 3), 1.0]
    assert [cost.seconds for cost in found.stages] == [cost.seconds for cost in alone.stages]
    assert found.spent_s > alone.spent_s
    itself = a_profiler(cache_bytes, reference=titles).profile(titles, "s", samples, Counting())
    assert itself.scores == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("judged", [(87.0, 1), (-1, 2), (float("nan"), 1), (1, float("inf"))])
def test_a_score_beyond_0_to_1_is_an_error(judged: tuple[float, float]) -> None:
    """A score in per cent accepted every configuration; one that was no number, none."""
    profiler = Profiler(PIPELINE, SPACE, PrefixCache(0), as_list, lambda result, truth: judged)
    with pytest.raises(ValueError, match="write 0 <= right <= of"):
        profiler.profile(0, "s", SAMPLES[:1], Counting())
