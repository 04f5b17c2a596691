"""The searches of a pipeline's sessions: proposals from the planners, profiles from the profilers.

At most one search per profiler runs at a time. Sessions with equal objectives on the same samples
share a search, if it began at the links and, to a tenth, at the paces that a later session has. A
search with a plan yields to searches without one, and its clock stops meanwhile. A session whose
links or operators' paces have changed needs no profiler: its plans are repriced from known
profiles. Every search goes by the paces known at its begin. Steps are solved in the planners'
process and profiles arrive as records, so the controller never blocks.

The state of a search is on the topics only. After a restart a search starts over, finished blocks
are not run again, and those that were run for it count to its deadline and its budget.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isinf

from control.estimation.operator_paces import OperatorPaces, variant_of
from control.policies.compass.search.camo import NearestConfiguration, Profiled, Slo
from control.policies.compass.search.pricing import Priced
from control.policies.compass.search.profile_store import ProfileStore, decided_profiles
from control.policies.compass.search.search_run import (
    SearchLimits,
    SearchPhase,
    SearchRun,
    used_s,
)
from control.policies.compass.search.search_step import (
    SearchProblem,
    same_search,
    search_id,
    search_options,
)
from control.policies.compass.search.sequential_test import StopRule
from control.policies.compass.session_options import DEADLINE, SESSIONS, SPEND
from control.policies.solvers import SEARCH
from control.problem.paces import Paces, pace_of
from control.problem.problem import PlanError
from control.problem.session_space import SessionSpace
from control.problem.tiers import Link
from control.sessions.session_health import SessionHealth
from schemas.effects import PROFILE_REQUESTS, Effect, Failed, Send, Solve, Solved
from schemas.enumerations import SessionState
from schemas.pipeline import Policy
from schemas.records import ProfileRequest, ProfileResult, Session, SessionChoice

EXPIRES_S = 60.0  # requests without a running search expire
FIRST_JOB = 1 << 40  # job numbers of steps are above; of plans, tables, schedules elsewhere
MOST_PLANS = 16  # kept per session, the cheapest
MOST_BEGUN = 4  # searches in a turn: each tests the known profiles, which takes up to 0.2 s

Links = Mapping[tuple[str, str], Link]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEnd:
    """The result of a session's search: its plans, the cheapest first, or why there are none.

    Without plans, ``nearest`` is one that is fast and cheap but not accurate enough, if there is
    one, with the lower bound of its accuracy at 99 %.
    """

    session: str
    plans: tuple[SessionChoice, ...]
    reason: str
    figures: dict[str, float | int | str]
    nearest: tuple[SessionChoice, float] | None = None


class SessionSearches:
    """The running searches; ``space`` has the choices of sessions."""

    def __init__(self, pipeline: str, space: SessionSpace) -> None:
        self._pipeline, self._space = pipeline, space
        self._store = ProfileStore(space.space)
        self._runs: dict[str, SearchRun] = {}  # by session
        self._asked: dict[str, tuple[object, ...]] = {}  # what each run's result depends on
        self._sharing: dict[str, str] = {}  # session -> the session whose run it shares
        self._solving: dict[int | str, tuple[str, SearchRun]] = {}  # job -> session and its run
        self._job = FIRST_JOB
        self._ended: list[SearchEnd] = []
        self._links: Mapping[str, Links] = {}
        self._qps: Mapping[str, float] = {}
        self._repriced: Collection[str] = ()
        self._paces: Mapping[str, Paces] = {}
        self._history = 0  # number of past searches that the newest one uses
        self._refused = ""  # why the newest request was refused, until a profiler answers one

    # ------------------------------------------------------------------ events

    def take(self, result: ProfileResult) -> None:
        """Store the result of a block. A profiler of another search space refuses requests."""
        self._store.keep(result)
        if self._runs:  # else it is from before a restart
            self._refused = result.error if result.space != self._space.space.digest else ""

    def owns(self, job: int | str) -> bool:
        """Return whether a solve is a step of one of these searches."""
        return job in self._solving

    def solved(self, event: Solved | Failed, now: float) -> None:
        """Process the result of a step."""
        name, run = self._solving.pop(event.job)
        if self._runs.get(name) is not run:
            return  # it has ended or restarted
        if isinstance(event, Failed):
            self._end(name, run, event.error, now)
        else:
            run.proposed(event.plan, now)

    # ------------------------------------------------------------------ requests

    def begin(
        self, waiting: Sequence[Session], seen: SessionHealth, paces: OperatorPaces, policy: Policy,
        now: float,
    ) -> None:  # fmt: skip
        """Begin the searches of sessions for which there are profilers, a few at a time.

        Searches of sessions that are no longer listed, or whose objectives have changed, end
        without a result. ``seen`` has links that differ from the file's, and rates of queries.
        """
        self._links, self._qps, self._repriced = seen.links, seen.qps, seen.repriced
        self._paces = {each.id: paces.of(each.id, now) for each in waiting}
        slos = {each.id: _slo(each) for each in waiting}
        self._runs = {n: run for n, run in self._runs.items() if run.problem.slo == slos.get(n)}
        self._sharing = {
            name: other
            for name, other in self._sharing.items()
            if other in self._runs and self._runs[other].problem.slo == slos.get(name)
        }
        self._asked = {name: self._asked[name] for name in self._runs}
        searched = {asked: name for name, asked in self._asked.items()}
        left = MOST_BEGUN
        for session in waiting:
            if session.id in self._runs or session.id in self._sharing:
                continue
            asked = self._objectives(session)
            if asked in searched:
                self._sharing[session.id] = searched[asked]
            elif left and self._has_room(session):
                left -= 1
                if self._begun(session, policy, now):
                    self._asked[session.id], searched[asked] = asked, session.id

    def _has_room(self, session: Session) -> bool:
        """Return whether a profiler is free for a search, or the search needs none."""
        planless = sum(not run.plans for run in self._runs.values())
        return session.id in self._repriced or planless < self._space.profilers

    def _active(self) -> frozenset[str]:
        """Return the active searches: those that need no profiler, and of the others as many as
        there are profilers, those without a plan first."""
        priced = [name for name in self._runs if name in self._repriced]
        others = [name for name in self._runs if name not in self._repriced]
        others.sort(key=lambda name: bool(self._runs[name].plans))
        return frozenset([*priced, *others[: self._space.profilers]])

    def _objectives(self, session: Session) -> tuple[object, ...]:
        """Return the inputs that the result of a search depends on, as they are now."""
        links = tuple(sorted(self._links.get(session.id, {}).items()))
        slo = session.slo_s, session.accuracy, session.usd_per_h
        paces = tuple(sorted((on, round(pace, 1)) for on, pace in self._paces[session.id].items()))
        return session.samples, slo, links, paces, self._qps.get(session.id, 0.0)

    def _begun(self, session: Session, policy: Policy, now: float) -> bool:
        """Begin a search; return False if it ends at once."""
        if not self._runs:
            self._store.forget_errors()  # their causes may be fixed
        try:
            self._begin(session, policy, now)
        except PlanError as error:
            end = SearchEnd(session=session.id, plans=(), reason=str(error), figures={})
            self._ended.append(end)
            return False
        return True

    def _begin(self, session: Session, policy: Policy, now: float) -> None:
        options = search_options({each.name: each.of(policy) for each in SESSIONS})
        self._history = options.history
        slo = _slo(session)
        space = self._space.with_links(self._links.get(session.id, {}))
        resumed = session.state is SessionState.SEARCHING  # started before a restart
        began_s = session.changed_s if resumed else now
        search = search_id(session.id, began_s, now if resumed else None)
        self._store.reopen(session.samples, options.rule, search)
        problem = SearchProblem(
            search=search,
            sessions=space.with_paces(self._paces[session.id]),
            slo=slo,
            options=options,
            history=self._store.past(session.samples, options.history),
            learnt=self._known(session.samples, search, slo.accuracy, options.rule),
            qps=self._qps.get(session.id, 0.0),
        )
        limits = SearchLimits(
            deadline_s=float(DEADLINE.of(policy)),
            spend_usd=float(SPEND.of(policy)),
            price=max((tier.price for tier in self._space.tiers.values()), default=0.0),
            priced=session.id in self._repriced,
        )
        blocks = self._store.blocks(session.samples).values()
        own = [each for each in blocks if same_search(each.search, search)]
        self._runs[session.id] = SearchRun(problem, limits, began_s, used_s(own))

    def _known(
        self, samples: str, search: str, floor: float, rule: StopRule
    ) -> tuple[Profiled, ...]:
        """Return the profiles that other searches on the same samples had decided before this one
        had a result, so that it starts with the same profiles after a restart."""
        return decided_profiles(
            self._space.space, self._store.earlier(samples, search), floor, rule
        )

    def advance(self, waiting: Sequence[Session], now: float) -> list[Effect]:
        """Return the requests and steps that the searches need now."""
        effects: list[Effect] = []
        active = self._active()
        for session in waiting:
            run = self._runs.get(session.id)
            if run is not None and session.id in active:
                run.resume(now)
                effects += self._advance(session, run, now)
            elif run is not None:
                run.pause(now)
        return effects

    def _advance(self, session: Session, run: SearchRun, now: float) -> list[Effect]:
        try:
            wanted = run.profile(self._store.blocks(session.samples), now)
        except PlanError as error:
            self._end(session.id, run, str(error), now)
            return []
        if run.phase is SearchPhase.ENDED:
            self._end(session.id, run, "", now)
        if run.phase is not SearchPhase.PROPOSES:
            return [self._request(session, run, first, upto, now) for first, upto in wanted]
        if (session.id, run) in self._solving.values():
            return []
        self._job += 1
        self._solving[self._job] = session.id, run
        return [Solve(self._job, SEARCH, run.problem)]

    def _request(
        self, session: Session, run: SearchRun, first: int, upto: int, now: float
    ) -> Effect:
        request = ProfileRequest(
            search=run.problem.search, pipeline=self._pipeline, space=self._space.space.digest,
            options=self._space.space.named(run.configuration), sample_set=session.samples,
            first=first, upto=upto, step=run.step, expires_s=now + EXPIRES_S,
        )  # fmt: skip
        # Keyed by samples, so that a profiler gets those whose outputs it has cached.
        return Send(PROFILE_REQUESTS, request, key=f"{session.samples}/{first}")

    # ------------------------------------------------------------------ results

    def figures(self, name: str, now: float) -> dict[str, float | int | str]:
        """Return the steps and times of a session's search so far, as fields of ``Session``."""
        run = self._run(name)
        return {
            "steps": run.steps,
            "profile_s": 0.0 if name in self._sharing else run.profile_s,
            "search_s": now - run.began_s,
            "stopped": run.stopped,
        }

    def plans(self, name: str) -> tuple[SessionChoice, ...]:
        """Return the plans that a session's search has found so far, the cheapest first."""
        run = self._run(name)
        return tuple(choice(run.problem.sessions, each) for each in run.plans[:MOST_PLANS])

    def nearest(self, name: str) -> tuple[SessionChoice, float] | None:
        """Return the most accurate plan found so far that is not accurate enough, with the lower
        bound of its accuracy at 99 %."""
        return _nearest(self._run(name))

    def _run(self, name: str) -> SearchRun:
        return self._runs[self._sharing.get(name, name)]

    def forget(self, samples: Collection[str]) -> None:
        """Discard profiles on inputs of sessions, except ``samples``, those of open sessions, and
        the history of the next search."""
        self._store.forget(samples, self._history)

    @property
    def states(self) -> dict[str, str]:
        """The state of every running search, as a sentence by session."""
        found: dict[str, str] = {}
        waits = ": ".join(filter(None, ("its search is waiting for a profiler", self._refused)))
        for name, run in self._runs.items():
            found[name] = (
                waits
                if run.waits
                else f"searching for a plan: {run.steps} configurations profiled, "
                f"{len(run.plans)} plans"
            )
        for name, other in self._sharing.items():
            found[name] = f"it shares the search of session {other!r}, which has equal objectives"
        return found

    def ended(self) -> list[SearchEnd]:
        """Return the searches that ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def _end(self, name: str, run: SearchRun, error: str, now: float) -> None:
        failed = run.error or self._refused
        reason = error or nothing_complies(run.problem.slo, run.nearest, run.stopped, failed)
        sharing = [each for each, other in self._sharing.items() if other == name]
        nearest = _nearest(run)
        self._ended += [
            SearchEnd(
                session=each, plans=self.plans(each), reason=reason,
                figures=self.figures(each, now), nearest=nearest,
            )
            for each in (name, *sharing)
        ]  # fmt: skip
        del self._runs[name]
        for each in sharing:
            del self._sharing[each]


def _slo(session: Session) -> Slo:
    usd = inf if session.usd_per_h is None else session.usd_per_h
    return Slo(accuracy=session.accuracy or 0.0, latency_s=session.slo_s, usd_per_h=usd)


def _nearest(run: SearchRun) -> tuple[SessionChoice, float] | None:
    plan = None if run.nearest is None else run.nearest.plan
    if plan is None:
        return None
    return choice(run.problem.sessions, plan), plan.accuracy_low


def choice(space: SessionSpace, plan: Priced) -> SessionChoice:
    """Return a search's plan as a session's choice."""
    tasks = [stage.name for stage in space.space.stages]
    settings = {task: space.setting(task, plan.configuration) for task in tasks}
    tiers = space.space.placed(plan.placement)
    paces = {task: pace_of(space.paces, variant_of(settings[task]), tiers[task]) for task in tasks}
    return SessionChoice(
        settings=settings,
        tiers=tiers,
        quarters=dict(zip(tasks, plan.occupied, strict=True)),
        latency_s=plan.latency_s,
        accuracy=plan.accuracy,
        usd_per_h=plan.usd_per_h,
        run_s=dict(zip(tasks, plan.run_s, strict=True)),
        paces={task: pace for task, pace in paces.items() if pace != 1.0},
    )


def nothing_complies(
    slo: Slo, nearest: NearestConfiguration | None, stopped: str, error: str = ""
) -> str:
    """Return a sentence that no plan complies, with the figures of the nearest. ``error`` is the
    newest one of a configuration that could not be run."""
    if nearest is None and error:
        return f"no plan meets its objectives: no configuration could be profiled: {error}"
    ended = {"space": "every configuration that may comply was profiled"}.get(
        stopped, f"the search stopped at its {stopped} (`headrace session replan` continues it)"
    )
    if nearest is None:
        return f"no plan meets its objectives: {ended}, and nothing was profiled"
    if isinf(nearest.latency_s):
        return f"no plan meets its objectives: {ended}; its links are too slow for its queries"
    found = [
        f"{nearest.accuracy_text(slo.accuracy)} ({slo.accuracy:g} wanted)",
        f"{nearest.latency_s * 1e3:.0f} ms ({slo.latency_s * 1e3:g} ms wanted)",
    ]
    if nearest.usd_per_h is not None and nearest.usd_per_h > slo.usd_per_h:
        found.append(f"{nearest.usd_per_h:.3f} $/h ({slo.usd_per_h:g} $/h wanted)")
    return f"no plan meets its objectives: {ended}; the nearest has {', '.join(found)}"
