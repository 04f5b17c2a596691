"""The health of serving sessions, and the alarm when one needs another plan.

Four deviations raise an alarm: answers that are less accurate than the session's objective
(labels), queries that do not end in time (outcomes), links with a changed speed (transfers), and
operators whose pace makes the plan too slow (batches; control/estimation/operator_paces.py).
All are detected from counts in the reports of scorer, egress and workers. Counts are sums since a
node's start, so differences are taken by node and incarnation. Their time is that of their arrival,
because the clocks of other hosts may be off.

For a changed link or pace, known plans are repriced without profiling; the other two start a
search on the session's newest inputs. A search that does not help is repeated only after a pause,
which doubles each time; a trouble long after the last one has no pause. Nor has a pace that has
risen further since it gave the session its plan: it rises over many batches (``MEMORY``).
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from control.problem.sample_sets import Truth
from control.problem.session_space import SessionSpace
from control.problem.tiers import Link
from control.sessions.link_drift import FACTOR, FINER, LinkDrift, LinkSums
from control.sessions.score_drift import ScoreDrift, Scores
from schemas.count_names import count_name
from schemas.records import ANSWERED, DROPPED, FAILED, Report, Session, SessionPlan

WINDOW_S = 5.0  # of outcomes
LEAST_QUERIES = 10
LEAST_ATTAINMENT = 0.9
SURE = 3.45  # -ln(0.001) / 2: Hoeffding's bound of a share at that confidence
PAUSE_S, MOST_PAUSE_S = 10.0, 600.0
HEARD_S = 2.0  # an active egress reports more often
COUNTED = ("session", "hop")  # in reports, by session
ENDS = (ANSWERED, "late", DROPPED, FAILED)

Hop = tuple[str, str]  # tiers


class Drift(StrEnum):
    """The deviation of a session from its plan."""

    ACCURACY = "accuracy"
    ATTAINMENT = "attainment"
    LINK = "link"
    PACE = "pace"

    @property
    def reprices(self) -> bool:
        """Whether known plans get new prices, and nothing is profiled."""
        return self in (Drift.LINK, Drift.PACE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """A session that needs another plan: the deviation, its start, the links as observed."""

    session: str
    drift: Drift
    since_s: float
    reason: str
    links: Mapping[Hop, Link] = field(default_factory=dict)


@dataclass(slots=True)
class _Seen:
    """The observations of one session under the plan ``number``."""

    number: int
    from_s: float  # time since when all answers are by this plan
    asked_s: float  # last time that queries of the session ended
    scores: ScoreDrift = field(default_factory=ScoreDrift)
    outcomes: deque[tuple[float, float, float]] = field(default_factory=deque)  # in time, of
    hops: dict[Hop, LinkDrift] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Pause:
    """Until when a session is not searched again, how long the next pause is, and the number of its
    plan at the newest alarm."""

    until_s: float = 0.0
    next_s: float = PAUSE_S
    number: int = 0


class SessionHealth:
    """The health of a pipeline's sessions; ``links`` are those that differ from the file's.

    For ``drain_s`` after a change of plan, answers may be by the previous plan.
    """

    def __init__(self, space: SessionSpace, drain_s: float) -> None:
        self._space = space
        self._drain_s = drain_s
        self._counts: dict[str, tuple[float, Mapping[str, float]]] = {}  # by node and incarnation
        self._heard: dict[str, tuple[float, float]] = {}  # by egress: without a gap from, until
        self._seen: dict[str, _Seen] = {}
        self._pauses: dict[str, _Pause] = {}
        self.links: dict[str, dict[Hop, Link]] = {}  # by session
        self.repriced: set[str] = set()  # sessions whose last alarm asked for new prices only
        # Of replanned sessions, at that time: queries per second, and the accuracy of the plan that
        # was not accurate enough.
        self.qps: dict[str, float] = {}
        self._accuracies: dict[str, float] = {}

    # ------------------------------------------------------------------ observations

    def take(self, report: Report, now: float) -> None:
        """Record the counts of a report. The first ones of an incarnation cover its whole life;
        only later increases count."""
        if report.role == "egress":
            since_s, until_s = self._heard.get(report.node, (now, now))
            self._heard[report.node] = since_s if now - until_s <= HEARD_S else now, now
        counts = {n: each for n, each in report.counts.items() if count_name(n).what in COUNTED}
        incarnation, before = self._counts.get(report.node, (None, {}))
        self._counts[report.node] = report.incarnation, counts
        if incarnation != report.incarnation:
            return
        found: dict[str, dict[str, float]] = {}
        for name, count in counts.items():
            what, of = count_name(name)
            session, rest = count_name(of)
            known = before.get(name, 0.0)
            news = count - known if count >= known else count  # it was dropped, and begun anew
            if news and session in self._seen:
                found.setdefault(session, {})[f"{what}/{rest}"] = news
        for session, each in found.items():
            self._add(self._seen[session], each, now)

    def _add(self, seen: _Seen, counts: Mapping[str, float], at_s: float) -> None:
        for hop, sums in _hops(counts).items():
            transfers = LinkSums(
                at_s, int(sums.get("records", 0)), sums.get("bytes", 0.0), sums.get("busy_s", 0.0)
            )
            seen.hops.setdefault(hop, LinkDrift()).add(transfers)
        ended = sum(counts.get(f"session/{each}", 0.0) for each in ENDS)
        if ended:
            seen.asked_s = at_s
        if at_s < seen.from_s:
            return
        if labels := int(counts.get("session/labels", 0)):
            scores, squares = (counts.get(f"session/{n}", 0.0) for n in ("score", "squares"))
            seen.scores.add(Scores(at_s, labels, scores, squares))
        if ended:
            seen.outcomes.append((at_s, counts.get(f"session/{ANSWERED}", 0.0), ended))
            _discard_old(seen, at_s)

    def serves(self, plans: Mapping[str, SessionPlan], now: float) -> None:
        """Set the serving plans; discard observations under other plans."""
        for gone in set(self._seen) - set(plans):
            del self._seen[gone]
        for name, plan in plans.items():
            seen = self._seen.get(name)
            if seen is None or seen.number != plan.number:
                first = seen is None and plan.number == 1
                from_s = now if first else now + self._drain_s
                self._seen[name] = _Seen(plan.number, from_s, now if seen is None else seen.asked_s)

    def idle(self, within_s: float, now: float) -> tuple[str, ...]:
        """Return the serving sessions without queries for ``within_s`` seconds. Every egress that
        is not gone must have reported in that time, because only egress sees queries."""
        if any(now - until_s > HEARD_S for _, until_s in self._heard.values()):
            return ()
        heard_s = max((since_s for since_s, _ in self._heard.values()), default=now)
        return tuple(
            name
            for name, seen in self._seen.items()
            if now - max(seen.asked_s, heard_s) >= within_s
        )

    def forget(self, session: str) -> None:
        """Discard the observations and pauses of a session that was closed or replanned by a
        command."""
        self.links.pop(session, None)
        self.repriced.discard(session)
        self.qps.pop(session, None)
        self._accuracies.pop(session, None)
        self._pauses.pop(session, None)

    def forget_node(self, node: str) -> None:
        """Discard the counts and the report times of a node that is gone."""
        self._counts.pop(node, None)
        self._heard.pop(node, None)

    def objectives_changed(self, session: str) -> None:
        """Discard why a session was replanned last: the next search has another reason."""
        self._accuracies.pop(session, None)
        self.repriced.discard(session)

    def helps(self, session: str, accuracy: float) -> bool:
        """Return whether a plan's accuracy exceeds the measured one for which a session is
        replanned; False if it is replanned for another reason."""
        before = self._accuracies.get(session)
        return before is not None and accuracy > before

    # ------------------------------------------------------------------ alarms

    def alarm(self, session: Session, now: float, extra_s: float = 0.0) -> Alarm | None:
        """Return why a serving session needs another plan, or None; at the observed paces of its
        operators, the plan takes ``extra_s`` seconds beyond its planned latency."""
        seen = self._seen.get(session.id)
        if seen is None or not session.samples:
            return None
        _discard_old(seen, now)
        found = self._found(session, seen, now, extra_s)
        if found is not None:
            (self.repriced.add if found.drift.reprices else self.repriced.discard)(session.id)
            self.qps[session.id] = sum(each[2] for each in seen.outcomes) / WINDOW_S
            if found.drift is not Drift.ACCURACY:
                self._accuracies.pop(session.id, None)
        return found

    def _found(self, session: Session, seen: _Seen, now: float, extra_s: float) -> Alarm | None:
        found = self._link(session.id, seen)
        if found is not None:
            self.links.setdefault(session.id, {}).update(found.links)
            return found
        pause = self._pauses.get(session.id, _Pause())
        slower = _pace(session, extra_s, now)
        if now < pause.until_s:
            moved = session.id in self.repriced and session.number != pause.number
            if slower is not None and moved:
                self._pauses[session.id] = replace(pause, number=session.number)
                return slower
            return None
        found = self._accuracy(session, seen) or slower or self._attainment(session, seen)
        if found is not None:
            new = now > pause.until_s + MOST_PAUSE_S
            pause_s = PAUSE_S if new else pause.next_s
            next_s = min(2 * pause_s, MOST_PAUSE_S)
            self._pauses[session.id] = _Pause(now + pause_s, next_s, session.number)
        return found

    def _link(self, session: str, seen: _Seen) -> Alarm | None:
        for between, drift in seen.hops.items():
            link = self.link(session, between)
            factor = FINER if between in self.links.get(session, {}) else FACTOR
            found = None if link is None else drift.seen(link, factor)
            if link is None or found is None:
                continue
            drift.forget()
            ratio = link.bytes_per_s / found[0].bytes_per_s
            reason = (
                f"its link {between[0]}>{between[1]} is {max(ratio, 1 / ratio):.1f} times "
                f"{'slower' if ratio > 1 else 'faster'} than planned"
            )
            return Alarm(
                session=session, drift=Drift.LINK, since_s=found[1], reason=reason,
                links={between: found[0]},
            )  # fmt: skip
        return None

    def link(self, session: str, between: Hop) -> Link | None:
        """Return a session's link."""
        return self.links.get(session, {}).get(between) or self._space.links.get(between)

    def _accuracy(self, session: Session, seen: _Seen) -> Alarm | None:
        if session.accuracy is None:
            return None
        window = seen.scores.below(session.accuracy)
        if window is None:
            return None
        self._accuracies[session.id] = window.mean
        reason = f"its measured accuracy is below {session.accuracy:g}"
        return Alarm(session=session.id, drift=Drift.ACCURACY, since_s=window.at_s, reason=reason)

    def _attainment(self, session: Session, seen: _Seen) -> Alarm | None:
        ended = sum(each[2] for each in seen.outcomes)
        judged = self._space.truth is Truth.REFERENCE or len(seen.scores) > 0
        if ended < LEAST_QUERIES or not judged:  # no profiling without a truth
            return None
        share = sum(each[1] for each in seen.outcomes) / ended
        if share + (SURE / ended) ** 0.5 >= LEAST_ATTAINMENT:
            return None
        reason = (
            f"{100 * share:.0f} % of its queries were answered in time in the last {WINDOW_S:g} s"
        )
        since_s = seen.outcomes[0][0]
        return Alarm(session=session.id, drift=Drift.ATTAINMENT, since_s=since_s, reason=reason)


def _pace(session: Session, extra_s: float, now: float) -> Alarm | None:
    """Return an alarm if operators take so much longer than planned that the SLO is missed."""
    planned_s = session.plans[session.chosen].latency_s if session.chosen >= 0 else 0.0
    latency_s = planned_s + extra_s
    if not 0 < planned_s <= session.slo_s < latency_s:
        return None
    reason = (
        f"its operators take longer than planned: {1e3 * latency_s:.0f} ms in all, not "
        f"{1e3 * planned_s:.0f} ms"
    )
    return Alarm(session=session.id, drift=Drift.PACE, since_s=now, reason=reason)


def _discard_old(seen: _Seen, now: float) -> None:
    """Discard outcomes that have left the window."""
    while seen.outcomes and seen.outcomes[0][0] < now - WINDOW_S:
        seen.outcomes.popleft()


def _hops(counts: Mapping[str, float]) -> dict[Hop, dict[str, float]]:
    """Return the counts of transfers by hop."""
    hops: dict[Hop, dict[str, float]] = {}
    for name, count in counts.items():
        what, rest = count_name(name)
        if what == "hop":
            between, of = count_name(rest)
            origin, _, to = between.partition(">")
            hops.setdefault((origin, to), {})[of] = count
    return hops
