"""Profile results on the topic, split into results of a session's samples and history."""

from dataclasses import replace

import numpy as np

from control.policies.compass.search.profile_store import ProfileStore
from control.policies.compass.search.sequential_test import StopRule, plain
from control.problem.sample_sets import InputSet
from control.problem.space import Knob, Space
from schemas.records import ProfileResult
from tests.session_world import a_space

SPACE = a_space().space
SEEN = "workload@0"


def widened(space: Space) -> Space:
    """Return the space with one more option of its last knob, and one more knob."""
    *knobs, last = space.knobs
    longer = replace(last, options=(*last.options, "9"))
    return replace(space, knobs=(*knobs, longer, Knob("read", "beam", ("1", "5"))))


def result(space: Space, configuration: int, score: float = 1.0, **more: object) -> ProfileResult:
    usual = {
        "pipeline": "p", "space": space.digest, "options": space.named(configuration),
        "sample_set": SEEN, "first": 0, "scores": (score,) * 10,
        "seconds": {"scan": 0.1, "read": 0.2}, "bytes": {"scan": 10.0}, "cached": {},
        "input_bytes": 100.0, "spent_s": 0.3, "device": "cpu", "profiler": "x", "finished_s": 1.0,
    }  # fmt: skip
    return ProfileResult(**{**usual, **more})  # type: ignore[arg-type]


def test_results_of_this_space_are_blocks_and_those_of_other_sets_history() -> None:
    store = ProfileStore(SPACE)
    store.keep(result(SPACE, 3))
    assert list(store.blocks(SEEN)) == [(3, 0)]
    assert store.past(SEEN) == ()
    assert [past.configuration.tolist() for past in store.past("workload@1")] == [[3]]


def test_results_of_another_space_are_history_by_the_names_of_their_options() -> None:
    wide = widened(SPACE)
    store = ProfileStore(SPACE)
    for configuration in range(wide.configuration_count):
        store.keep(result(wide, configuration, score=configuration / 100))
    assert store.blocks(SEEN) == {}  # other operators may have run, so they decide no test
    pasts = store.past(SEEN)
    assert len(pasts) == 2  # one for each option of the knob that this space lacks
    for past in pasts:
        named = [SPACE.named(c) for c in past.configuration.tolist()]
        assert named == [SPACE.named(c) for c in range(SPACE.configuration_count)]
        assert past.seconds[0].tolist() == [0.01, 0.02]


def test_options_of_a_knob_that_was_removed_are_not_mixed() -> None:
    wide = replace(SPACE, knobs=(*SPACE.knobs, Knob("read", "beam", ("1", "5"))))
    store = ProfileStore(SPACE)
    for configuration, score in ((0, 0.2), (1, 0.9)):
        for first in (0, 10):
            block = result(wide, configuration, score, first=first, finished_s=1.0 + configuration)
            store.keep(block)
    store.keep(result(wide, 1, 0.9, first=20, finished_s=3.0))
    pasts = store.past(SEEN)
    assert [past.configuration.tolist() for past in pasts] == [[0], [0]]
    means = [plain(np.array([score] * count)).mean for score, count in ((0.2, 20), (0.9, 30))]
    assert [past.accuracy.tolist() for past in pasts] == [[means[0]], [means[1]]]


def test_a_knob_that_earlier_results_lack_makes_them_no_history() -> None:
    store = ProfileStore(widened(SPACE))
    store.keep(result(SPACE, 0))
    assert store.past(SEEN) == ()


def test_results_by_another_truth_or_without_a_stage_are_no_history() -> None:
    store = ProfileStore(SPACE)
    store.keep(result(replace(SPACE, truth="feedback"), 0))
    store.keep(result(widened(SPACE), 0, seconds={"scan": 0.1}))
    assert store.past(SEEN) == ()


def test_a_set_of_labelled_inputs_does_not_end_where_it_ended_for_an_earlier_search() -> None:
    store, rule = ProfileStore(SPACE), StopRule(least=20, most=35)
    labelled = InputSet("cam", 1.0).name
    for sample_set in (labelled, InputSet("cam", 1.0, 2.0).name, SEEN):
        for first, count in ((0, 10), (10, 7), (20, 0), (30, 10)):
            more = {"first": first, "scores": (1.0,) * count, "search": "cam@5.000+6.000"}
            store.keep(result(SPACE, 3, sample_set=sample_set, **more))
        store.keep(result(SPACE, 4, sample_set=sample_set, scores=(), error="no weights"))
        store.reopen(sample_set, rule, "cam@5.000")
        assert len(store.blocks(sample_set)) == 5
        store.reopen(sample_set, rule, "cam@5.100")
    assert list(store.blocks(labelled)) == [(3, 0), (3, 30), (4, 0)]
    assert len(store.blocks(InputSet("cam", 1.0, 2.0).name)) == len(store.blocks(SEEN)) == 5


def test_an_error_does_not_replace_the_scores_of_a_block() -> None:
    """A request that was given to a second profiler is answered twice."""
    store = ProfileStore(SPACE)
    store.keep(result(SPACE, 3, error="no memory", scores=()))
    store.keep(result(SPACE, 3))
    store.keep(result(SPACE, 3, error="no memory", scores=()))
    assert [each.error for each in store.blocks(SEEN).values()] == [""]


def test_results_are_as_old_as_their_place_on_the_topic() -> None:
    """A profiler whose clock was ahead made its sets the newest history for good."""
    store = ProfileStore(SPACE)
    for seed, finished_s in enumerate((9e9, 2.0, 1.0)):
        store.keep(result(SPACE, seed, sample_set=f"workload@{seed}", finished_s=finished_s))
    newest = store.past("workload@7", 2)
    assert [past.configuration.tolist() for past in newest] == [[1], [2]]


def test_results_before_the_first_one_of_a_search_are_those_ahead_of_it_on_the_topic() -> None:
    store = ProfileStore(SPACE)
    for configuration, search in enumerate(("a@1.000", "b@2.000", "a@1.000", "b@2.000+3.000")):
        store.keep(result(SPACE, configuration, search=search, finished_s=-configuration))
    assert list(store.earlier(SEEN, "b@2.000+4.000")) == [(0, 0)]
    assert len(store.earlier(SEEN, "c@3.000")) == 4
