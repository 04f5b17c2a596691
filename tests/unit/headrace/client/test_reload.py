"""``headrace reload``: the result of a reload, worker by worker."""

from msgspec.structs import replace

from headrace.client.reload import ReloadWatch
from schemas.records import Report

BEFORE = Report(
    node="w", role="worker", pipeline="p", epoch=4, incarnation=1.0, sent_s=0.0, state="ready",
    task="read", variant="v", counts={"reloaded/read/v": 1.0},
)  # fmt: skip


def outcome(*reports: Report, target: str = "all") -> dict[str, str]:
    watch = ReloadWatch("p", target)
    watch.see((BEFORE, *reports))
    return watch.outcomes(5)


def test_a_worker_loads_until_its_count_grows_in_the_plan_of_the_reload() -> None:
    done = replace(BEFORE, epoch=5, counts={"reloaded/read/v": 2.0})
    assert outcome() == {"w": "loading"}
    assert outcome(replace(BEFORE, epoch=5)) == {"w": "loading"}
    assert outcome(replace(done, epoch=4)) == {"w": "loading"}
    assert outcome(done) == {"w": "reloaded"}


def test_code_that_cannot_be_loaded_is_reported() -> None:
    failed = {"reloaded/read/v": 1.0, "reload_failed/read/v": 1.0}
    assert outcome(replace(BEFORE, epoch=5, counts=failed, error="why")) == {"w": "why"}


def test_a_new_process_has_the_code_of_its_start() -> None:
    assert outcome(replace(BEFORE, incarnation=2.0)) == {"w": "reloaded"}


def test_only_workers_that_hold_the_variant_are_awaited() -> None:
    assert outcome(target="locate") == {}
    assert outcome(target="read/v") == {"w": "loading"}
    assert outcome(replace(BEFORE, node="x", pipeline="other")) == {"w": "loading"}
    assert outcome(replace(BEFORE, node="x", variant="")) == {"w": "loading"}
