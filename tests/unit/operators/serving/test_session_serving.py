"""A worker that serves sessions: items wait for their setting, one by one."""

from itertools import pairwise

from control.problem.tiers import Link
from operators.serving.transfers import SessionLinks
from operators.serving.worker import Worker
from schemas.effects import Assign, Done, Failed, Infer, Load, Send, Unload, Wake, Woke
from schemas.pipeline import Policy
from schemas.records import DROPPED, FAILED, Report, SessionPlan, Settings
from tests.builders import (
    a_lease,
    a_plan,
    a_work,
    an_item,
    arrived,
    inferred,
    inferring,
    loaded,
    reports,
    sent,
)
from tests.session_world import a_query_plan, a_session_pipeline

LINK = Link(bytes_per_s=float("inf"), delay_s=0.3)
HELD = 8  # items that a worker holds before it stops reading, for batches of one


def a_session_worker(links: SessionLinks | None = None) -> Worker:
    worker = Worker("w", a_session_pipeline(), "cpu", incarnation=0.0, links=links)
    lease = a_lease(task="scan", batch=1)
    worker.handle(Woke(), 0.0)
    settings = Settings(policy="compass", slo_s=1.0)
    worker.handle(arrived(a_plan([lease], settings=settings)), 0.0)
    return worker


def test_an_item_waits_until_its_setting_is_loaded() -> None:
    worker = a_session_worker()
    worker.handle(arrived(a_work(0, an_item(), task="scan")), 0.0)
    effects = worker.handle(Woke(), 0.0)
    assert [each for each in effects if isinstance(each, Load | Infer)] == [
        Load("scan/v", beside=True)
    ]
    worker.handle(loaded("scan/v"), 0.1)
    (infer,) = [each for each in worker.handle(Woke(), 0.1) if isinstance(each, Infer)]
    assert infer.variant == "scan/v"


def test_a_setting_is_reported_as_held_as_soon_as_it_is_loaded() -> None:
    worker = a_session_worker()
    worker.handle(arrived(a_work(0, an_item(), task="scan")), 0.0)
    worker.handle(Woke(), 0.0)
    (report,) = reports(worker.handle(loaded("scan/v"), 0.1))
    assert report.held == ("scan/v",)


def test_an_item_runs_after_the_transfer_over_its_sessions_link() -> None:
    worker = a_session_worker(SessionLinks("handheld", {("handheld", "cloud"): LINK}))
    lease, settings = a_lease(task="scan", batch=1), Settings(policy="compass", slo_s=1.0)
    plan = a_query_plan("scan/v")
    opened = a_plan([lease], 2, settings=settings, sessions=(plan,))
    worker.handle(arrived(opened), 0.0)
    worker.handle(loaded("scan/v"), 0.0)
    work = arrived(a_work(0, an_item(), task="scan", session=plan))
    assert worker.handle(work, 0.1) == [Wake(0.4)]
    assert inferring(worker.handle(Woke(), 0.39)) == []
    effects = [*worker.handle(Woke(), 0.4), *worker.handle(Woke(), 0.4)]
    assert [infer.variant for infer in inferring(effects)] == ["scan/v"]
    (report,) = reports(worker.handle(Woke(), 0.7))
    assert report.counts["hop/scan/v/handheld>cloud/records"] == 1
    worker.handle(arrived(a_plan([lease], 3, settings=settings)), 0.8)  # the session has closed
    (report,) = reports(worker.handle(Woke(), 1.0))
    assert not any(name.startswith("hop/") for name in report.counts)


def test_an_item_whose_slot_is_lost_during_its_transfer_does_not_run() -> None:
    worker = a_session_worker(SessionLinks("handheld", {("handheld", "cloud"): LINK}))
    plan, settings = a_query_plan("scan/v"), Settings(policy="compass", slo_s=1.0)
    worker.handle(arrived(a_work(0, an_item(), task="scan", session=plan)), 0.1)
    lost = a_plan([a_lease(task="scan", batch=1, slots=(1,))], 2, settings=settings)
    for event, now in ((arrived(lost), 0.2), (loaded("scan/v"), 0.2), (Woke(), 0.4), (Woke(), 0.4)):
        assert inferring(worker.handle(event, now)) == []


def test_a_setting_is_unloaded_after_its_last_batch_not_during_it() -> None:
    worker = a_session_worker()
    lease, settings = a_lease(task="scan", batch=1), Settings(policy="compass", slo_s=1.0)
    plan = a_query_plan("scan/w")
    worker.handle(arrived(a_plan([lease], 2, settings=settings, sessions=(plan,))), 0.0)
    worker.handle(loaded("scan/w"), 0.0)
    worker.handle(arrived(a_work(0, an_item(), task="scan", session=plan)), 0.0)
    (infer,) = inferring(worker.handle(Woke(), 0.0))
    closed = worker.handle(arrived(a_plan([lease], 3, settings=settings)), 0.1)
    ended = worker.handle(inferred(infer.job, []), 0.2)
    assert [Unload("scan/w") in effects for effects in (closed, ended)] == [False, True]


def test_a_worker_changes_between_sessions_and_the_variant_of_its_lease() -> None:
    policies = (Policy(name="compass", kind="compass"), Policy(name="static"))
    worker = Worker("w", a_session_pipeline(policies=policies), "cpu", incarnation=0.0)
    lease, plan = a_lease(task="scan", batch=1), a_query_plan("scan/v")

    def runs(epoch: int, policy: str, session: SessionPlan | None, *loads: str) -> list[str]:
        """Return the variants of the batches under the next plan; ``loads`` are needed first."""
        settings = Settings(policy=policy, slo_s=9.0)
        sessions = () if session is None else (session,)
        effects = [
            *worker.handle(
                arrived(a_plan([lease], epoch, settings=settings, sessions=sessions)), 0.0
            ),
            *worker.handle(arrived(a_work(epoch, task="scan", session=session), epoch), 0.0),
            *worker.handle(Woke(), 0.0),
        ]
        assert tuple(each.variant for each in effects if isinstance(each, Load)) == loads
        for variant in loads:
            effects += [*worker.handle(loaded(variant), 0.0), *worker.handle(Woke(), 0.0)]
        for infer in inferring(effects):
            worker.handle(inferred(infer.job, []), 0.1)
        return [infer.variant for infer in inferring(effects)]

    worker.handle(Woke(), 0.0)
    assert runs(1, "static", None, "scan/v") == ["scan/v"]
    assert runs(2, "compass", plan) == ["scan/v"]  # the device holds it
    assert runs(3, "compass", a_query_plan("scan/w"), "scan/w") == ["scan/w"]
    assert runs(4, "static", None, "scan/v") == ["scan/v"]
    assert runs(5, "static", None) == ["scan/v"]


def test_a_paused_worker_reads_on_once_items_of_a_setting_that_cannot_be_loaded_have_failed() -> (
    None
):
    worker = a_session_worker()
    for offset in range(HELD + 1):
        effects = worker.handle(arrived(a_work(offset, an_item(), task="scan"), offset=offset), 0.0)
    assert Assign("work.scan", paused=(0,)) in effects
    worker.handle(Woke(), 0.0)
    effects = worker.handle(Failed("scan/v", "no memory is left"), 0.1)
    ended = [item.end for work in sent(effects, "outputs") for item in work.items]
    assert [(end.outcome, end.reason) for end in ended] == [(FAILED, "no memory is left")] * 9
    assert effects[-1] == Assign("work.scan", paused=())


def test_a_paused_worker_reads_on_once_late_items_of_all_its_settings_are_dropped() -> None:
    worker, few, many = a_session_worker(), a_query_plan("scan/v"), a_query_plan("scan/w")
    for offset, session in enumerate([few, few, *[many] * (HELD - 1)]):
        work = a_work(offset, an_item(), task="scan", deadline_s=1.0, session=session)
        worker.handle(arrived(work, offset=offset), 0.0)
    worker.handle(Woke(), 0.0)
    worker.handle(loaded("scan/v"), 1.5)
    effects = worker.handle(loaded("scan/w"), 1.5)
    effects += worker.handle(Woke(), 1.5)
    ended = [item.end for work in sent(effects, "outputs") for item in work.items]
    assert [end.outcome for end in ended] == [DROPPED] * (HELD + 1)
    assert Assign("work.scan", paused=()) in effects


def test_every_setting_that_cannot_be_loaded_is_reported_until_no_plan_needs_it() -> None:
    worker = a_session_worker()
    lease, settings = a_lease(task="scan", batch=1), Settings(policy="compass", slo_s=1.0)
    plans = tuple(map(a_query_plan, ("scan/v@scale=0.5", "scan/w")))
    worker.handle(arrived(a_plan([lease], 2, settings=settings, sessions=plans)), 0.0)
    worker.handle(Woke(), 0.0)
    worker.handle(Failed("scan/v@scale=0.5", "v: no memory is left"), 0.1)
    effects = worker.handle(Failed("scan/w", "w: no such file"), 0.2)
    (report,) = [each.record for each in effects if isinstance(each, Send)]
    assert isinstance(report, Report)
    assert report.error == "v: no memory is left; w: no such file"
    told = {name for name in report.counts if name.startswith("unloadable/")}
    assert told == {"unloadable/scan/v@scale=0.5", "unloadable/scan/w"}
    worker.handle(arrived(a_plan([lease], 3, settings=settings)), 0.3)
    (report,) = [each.record for each in worker.handle(Woke(), 0.6) if isinstance(each, Send)]
    assert isinstance(report, Report)
    assert not [name for name in report.counts if name.startswith("unloadable/")]


def test_an_item_that_arrives_after_its_setting_failed_to_load_fails_with_the_reason() -> None:
    worker = a_session_worker()
    lease, settings = a_lease(task="scan", batch=1), Settings(policy="compass", slo_s=1.0)
    plan = a_query_plan("scan/w")
    worker.handle(arrived(a_plan([lease], 2, settings=settings, sessions=(plan,))), 0.0)
    worker.handle(Failed("scan/w", "no memory is left"), 0.1)
    effects = worker.handle(arrived(a_work(0, an_item(), task="scan", session=plan)), 0.2)
    ended = [item.end for work in sent(effects, "outputs") for item in work.items]
    assert [(end.outcome, end.reason) for end in ended if end] == [(FAILED, "no memory is left")]
    assert Assign("work.scan", done=(Done(0, 1),)) in effects


def test_a_setting_that_failed_to_load_is_loaded_again_ever_later_until_it_loads() -> None:
    worker = a_session_worker()
    lease, settings = a_lease(task="scan", batch=1), Settings(policy="compass", slo_s=1.0)
    plan, load = a_query_plan("scan/w"), Load("scan/w", beside=True)
    effects = worker.handle(arrived(a_plan([lease], 2, settings=settings, sessions=(plan,))), 0.0)
    tried = [0.0] if load in effects else []
    for tenth in range(1, 400):
        now = tenth / 10
        if tried[-1] > now - 0.1 - 1e-9:
            worker.handle(Failed("scan/w", "no memory is left"), now)
        if load in worker.handle(Woke(), now):
            tried.append(now)
    gaps = [round(after - before) for before, after in pairwise(tried)]
    assert gaps == [1, 2, 4, 8, 16]
    assert load in worker.handle(Woke(), 64.0)
    worker.handle(loaded("scan/w"), 64.1)
    effects = worker.handle(arrived(a_work(0, an_item(), task="scan", session=plan)), 64.1)
    assert not sent(effects, "outputs")
    assert load not in worker.handle(Woke(), 200.0)


def test_settings_that_no_session_uses_any_more_leave_no_counts() -> None:
    """Each setting that ever ran stayed in every report: five counts of each."""
    worker = a_session_worker()
    lease, settings = a_lease(task="scan", batch=1), Settings(policy="compass", slo_s=1.0)
    for number in range(100):
        plan = a_query_plan(f"scan/v@scale={number}")
        opened = a_plan([lease], 2 + number, settings=settings, sessions=(plan,))
        worker.handle(arrived(opened), 0.1)
        worker.handle(loaded(f"scan/v@scale={number}"), 0.1)
        work = a_work(number, an_item(), task="scan", session=plan)
        worker.handle(arrived(work, offset=number), 0.1)
        (infer,) = [each for each in worker.handle(Woke(), 0.1) if isinstance(each, Infer)]
        worker.handle(inferred(infer.job, []), 0.2)
    (report,) = reports(worker.handle(Woke(), 0.6))
    counted = {name.partition("@")[2].partition("/")[0] for name in report.counts} - {""}
    assert counted == {"scale=99"}
    assert report.counts["finished/scan/v@scale=99"] == 1
