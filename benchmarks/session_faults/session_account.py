"""Check the promises to sessions and their profiles against all records that a run wrote.

Each check yields one sentence per violation.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from benchmarks.chaos_account import CHECKS, Record, violations
from benchmarks.session_faults.session_pipeline import BLOCK, SampleRun, sample_of
from benchmarks.session_faults.session_rig import Place, Written, place
from control.problem.sample_sets import WORKLOAD
from schemas.enumerations import SessionState
from schemas.records import ANSWERED, Answer, ProfileRequest, ProfileResult, Session, SessionPlan

ASKED_WITHIN_S = 1.0  # a request may cross the result that makes it needless


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """All records of a run: those of its queries, of its sessions and of its profiles.

    ``open`` are the sessions that were opened and not closed. ``runs`` are the calls on samples by
    profilers. A profiler was killed or frozen ``hit`` times, and ``frozen`` times while it ran a
    block, which another one ran in that time.
    """

    queries: Record
    open: Collection[str]
    written: Sequence[Written] = ()
    requests: Sequence[tuple[float, ProfileRequest]] = ()
    profiles: Sequence[tuple[float, ProfileResult]] = ()
    runs: Sequence[SampleRun] = ()
    hit: int = 0
    frozen: int = 0
    asked_of: Mapping[str, str] = field(default_factory=dict)  # query -> its session

    @property
    def planned(self) -> Sequence[SessionPlan]:
        """The query plans of the newest plan."""
        newest = max(self.queries.plans, key=lambda each: each.epoch, default=None)
        return () if newest is None else newest.sessions


def broken_promises(record: SessionRecord) -> list[str]:
    """Return the violations, as sentences."""
    queries = {name: check for name, check in CHECKS.items() if name not in OF_OTHERS}
    return [*violations(record.queries, queries), *violations(record, PROMISES)]


def _served(record: SessionRecord) -> Iterator[str]:
    newest = {name: session for _, name, session in record.written}
    admitting = {each.session for each in record.planned if each.admits}
    for name in sorted(record.open):
        session = newest.get(name)
        if session is None:
            yield f"{name} has no record"
        elif session.state is not SessionState.SERVING:
            yield f"{name} is {session.state}: {session.reason}"
        elif session.chosen < 0 or not session.plans:
            yield f"{name} serves by no plan of its search"
        elif name not in admitting:
            yield f"{name} serves, and the newest plan does not admit its queries"


def _closed(record: SessionRecord) -> Iterator[str]:
    gone: set[str] = set()
    for _, name, session in record.written:
        if session is None:
            gone.add(name)
        elif name in gone:
            yield f"{name} was deleted, and has a record: {session.state}"
    planned = {each.session for each in record.planned}
    for name in sorted({name for _, name, _ in record.written} - set(record.open)):
        if name not in gone:
            yield f"{name} was closed, and is not deleted"
        if name in planned:
            yield f"{name} was closed, and the newest plan has it"


def _remembered(record: SessionRecord) -> Iterator[str]:
    by_name: dict[str, list[Session]] = {}
    for _, name, session in record.written:
        if session is not None:
            by_name.setdefault(name, []).append(session)
    for name, sessions in by_name.items():
        for before, after in pairwise(sessions):
            yield from (f"{name} {what}" for what in _forgotten(before, after))


def _forgotten(before: Session, after: Session) -> Iterator[str]:
    for what in ("slo_s", "accuracy", "usd_per_h", "weight", "opened_s"):
        was, now = getattr(before, what), getattr(after, what)
        if was != now:
            yield f"had {what} {was} and has {now}"
    for what in ("number", "replans"):
        if getattr(after, what) < getattr(before, what):
            yield f"had {what} {getattr(before, what)} and has {getattr(after, what)}"
    for what in ("planned_s", "serving_s"):
        was, now = getattr(before, what), getattr(after, what)
        if was is not None and now != was:
            yield f"had {what} {was} and has {now}"
    if before.plans and not after.plans:
        yield "had plans and has none"


def _run_once(record: SessionRecord) -> Iterator[str]:
    """Judge runs of a block that began after its result was written: only a profiler that was
    frozen within a block runs the rest of it then."""
    done_s: dict[Place, float] = {}
    for at_s, result in record.profiles:
        if result.scores:
            done_s.setdefault(place(result), at_s)
    ends = {
        (sample_of(samples, first + number), _of(options)): at_s
        for (options, samples, first), at_s in done_s.items()
        if samples.startswith(WORKLOAD)
        for number in range(BLOCK)
    }
    late = [
        run for run in record.runs if run.at_s > ends.get((run.payload, _key(run)), float("inf"))
    ]
    blocks = sorted({(run.payload[:-1], _key(run), run.pid) for run in late})
    if len(blocks) > record.frozen:
        yield f"{len(blocks)} finished blocks, {record.frozen} of frozen profilers: {blocks[:5]}"


def _few_lost(record: SessionRecord) -> Iterator[str]:
    """Judge how often a sample was run by a configuration: once, but for blocks in flight."""
    counts = Counter((run.payload, _key(run)) for run in record.runs)
    again = sum(counts.values()) - len(counts)
    if again > BLOCK * record.hit:
        yield f"{again} samples were run again, after {record.hit} hits of {BLOCK} at most"


def _not_asked_again(record: SessionRecord) -> Iterator[str]:
    done_s: dict[Place, float] = {}
    for at_s, result in record.profiles:
        if result.scores:
            done_s.setdefault(place(result), at_s)
    for at_s, request in record.requests:
        if at_s > done_s.get(place(request), float("inf")) + ASKED_WITHIN_S:
            yield f"{request.search} asked for {place(request)} {at_s:.3f}"


def _not_given_up(record: SessionRecord) -> Iterator[str]:
    for _, result in record.profiles:
        if result.error:
            yield f"{place(result)}: {result.error}"


def _by_its_plan(record: SessionRecord) -> Iterator[str]:
    """Judge the paths of answers: the settings are those of a plan of the query's session."""
    plans: dict[str, set[frozenset[str]]] = {}
    for plan in record.queries.plans:
        for each in plan.sessions:
            settings = frozenset(stage.setting for stage in each.stages)
            plans.setdefault(each.session, set()).add(settings)
    for answer in record.queries.answers:
        if answer.outcome != ANSWERED:
            continue
        session = record.asked_of.get(answer.id, "")
        for path in _paths(answer):
            if path not in plans.get(session, ()):
                yield f"{answer.id} of {session} took {sorted(path)}"


def _paths(answer: Answer) -> list[frozenset[str]]:
    return [frozenset(hop.key for hop in path) for path in answer.paths]


def _of(options: Sequence[tuple[str, str]]) -> tuple[str, str]:
    named = dict(options)
    return named["scan.scale"], named["read.votes"]


def _key(run: SampleRun) -> tuple[str, str]:
    return run.scale, run.votes


OF_OTHERS = ("a result is right", "dead letters are the garbage")
PROMISES = {
    "every open session is planned": _served,
    "a closed session stays closed": _closed,
    "no state of a session is forgotten": _remembered,
    "no finished block is run again": _run_once,
    "only blocks in flight are lost": _few_lost,
    "no finished block is requested again": _not_asked_again,
    "no configuration is given up": _not_given_up,
    "an answer is by a plan of its session": _by_its_plan,
}
