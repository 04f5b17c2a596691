"""Retention of profiles of sample sets."""

from control.policies.compass.search.profile_store import ProfileStore
from control.problem.sample_sets import InputSet
from schemas.records import ProfileResult
from tests.session_world import a_space

SPACE = a_space().space


def a_result(sample_set: str, finished_s: float, space: str = SPACE.digest) -> ProfileResult:
    return ProfileResult(
        pipeline="p", space=space, options=SPACE.named(3), sample_set=sample_set, first=0,
        scores=(0.0, 1.0), seconds={}, bytes={}, cached={}, input_bytes=0.0, spent_s=0.0,
        device="cpu", profiler="profiler-0", finished_s=finished_s,
    )  # fmt: skip


def test_session_input_profiles_in_use_and_the_newest_are_kept() -> None:
    store = ProfileStore(SPACE)
    drifts = [InputSet("cam", float(at)).name for at in range(6)]
    for at, name in enumerate(("workload@0", *drifts)):
        store.keep(a_result(name, float(at)))
    store.forget({drifts[1], drifts[5]}, most=2)
    kept = [name for name in ("workload@0", *drifts) if store.blocks(name)]
    assert kept == ["workload@0", drifts[1], drifts[3], drifts[4], drifts[5]]


def test_results_of_another_space_are_no_history() -> None:
    store = ProfileStore(SPACE)
    store.keep(a_result("workload@0", 1.0, space="another"))
    assert store.past("workload@1") == ()
    assert not store.blocks("workload@0")
