"""Check the invariants of a pipeline under faults against all records that it wrote.

Each check yields one sentence per violation.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any

from benchmarks.rig import Asked
from benchmarks.squares import right
from operators.outcomes import outcome_of
from schemas.effects import QUERIES
from schemas.records import ANSWERED, Answer, CommandResult, DeadLetter, Origin, Plan

MOST_MB = 300  # resident, of a role; roles had 80 to 121 MB in the runs of 2026-11-28
SHOWN = 10  # violations listed per check; the others are counted

# The sums that benchmarks/squares.py returns for words: of all items, or of the items that do not
# fail (None: no answer has a result).
WORDS: Mapping[bytes, int | None] = {
    b"word": 1 + 9,
    b"oversized output": 1 + 9,
    b"oversized item": None,
    b"raise": None,
    b"short": None,
    b"nonsense": None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """All records that went into the pipeline and came out of it.

    ``readers``: the workers that reported a slot, by (epoch, task, slot). ``commits`` of ingress
    and egress, by (group, partition), in order; ``memory`` in bytes, the most of each role
    (``chaos_watch.py``).
    """

    asked: Mapping[str, Asked]
    garbage: Sequence[Asked] = ()
    answers: Sequence[Answer] = ()
    letters: Sequence[DeadLetter] = ()
    plans: Sequence[Plan] = ()  # in the order of the topic
    followed: Mapping[tuple[str, float], Sequence[int]] = field(default_factory=dict)
    results: Sequence[CommandResult] = ()
    readers: Mapping[tuple[int, str, int], Collection[str]] = field(default_factory=dict)
    commits: Mapping[tuple[str, int], Sequence[int]] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)


def broken(record: Record) -> list[str]:
    """Return the violations, as sentences."""
    return violations(record, CHECKS)


def violations(record: Any, checks: Mapping[str, Callable[[Any], Iterable[str]]]) -> list[str]:
    """Return the violations that the checks of a record find, each with the check's name."""
    found = []
    for name, check in checks.items():
        cases = list(check(record))
        found += [f"{name}: {case}" for case in cases[:SHOWN]]
        if len(cases) > SHOWN:
            found.append(f"{name}: {len(cases) - SHOWN} more")
    return found


def _answered(record: Record) -> Iterator[str]:
    there = {answer.origin for answer in record.answers}
    for name, origin in sorted(_wanted(record).items(), key=lambda item: str(item[1])):
        if origin not in there:
            yield f"{name} at {_place(origin)} was acknowledged and has no answer"
    for name, asked in record.asked.items():
        if asked.acknowledged and asked.origin is None:
            yield f"{name} was acknowledged without its offset and has no answer"


def _answered_once(record: Record) -> Iterator[str]:
    answers: dict[Origin, list[Answer]] = {}
    for answer in record.answers:
        answers.setdefault(answer.origin, []).append(answer)
    for origin, several in answers.items():
        if len(several) > 1:
            yield f"{_place(origin)} has {len(several)}: " + "; ".join(map(_told, several))
    ids = Counter(answer.id for answer in record.answers)
    for name, count in ids.items():
        if count > 1:
            yield f"{name} has {count}"


def _asked_for(record: Record) -> Iterator[str]:
    wanted = set(_wanted(record).values())
    for answer in record.answers:
        if answer.origin not in wanted:
            yield f"nobody asked for {_told(answer)} of {_place(answer.origin)}"
        asked = record.asked.get(answer.id)
        if asked is not None and asked.origin != answer.origin:
            yield f"{answer.id} is at {asked.origin}, its answer is for {answer.origin}"


def _right(record: Record) -> Iterator[str]:
    for answer in record.answers:
        asked = record.asked.get(answer.id)
        if asked is None or answer.outcome != ANSWERED:
            continue
        results = _results(asked.payload, incomplete=answer.incomplete)
        if answer.result not in results:
            yield f"{_told(answer)} to {asked.payload[:20]!r} has {answer.result!r:.60}"


def _results(payload: bytes, *, incomplete: bool) -> set[int]:
    """Return every valid result: the sum of all three squares, or of a part if incomplete."""
    if not payload.isdigit():
        word = WORDS.get(payload)
        return {word, 1, 9, 0} if word is not None and incomplete else set()
    first = int(payload)
    if not incomplete:
        return {right(first)}
    squares = [(first + i) ** 2 for i in range(3)]
    return {sum(part) for count in range(3) for part in combinations(squares, count)}


def _plans_outbid(record: Record) -> Iterator[str]:
    """Judge plans with the epoch of one before them: a control app that is cut off writes them.

    Nodes that follow the first plan reject the second; a node that starts after the topic was
    compacted may not, so another plan has to follow. No node follows a lower epoch than an earlier
    one.
    """
    highest = 0
    contested: Plan | None = None
    for plan in record.plans:
        if plan.epoch > highest:
            highest, contested = plan.epoch, None
        elif plan.epoch == highest:
            contested = plan
    if contested is not None:
        yield f"epoch {contested.epoch} ({contested.reason}) has two plans and was not outbid"


def _nobody_goes_back(record: Record) -> Iterator[str]:
    for (node, began_s), epochs in record.followed.items():
        for before, after in _falls(epochs):
            yield f"{node}, started at {began_s:.3f}, went from epoch {before} to {after}"


def _one_reader(record: Record) -> Iterator[str]:
    """Judge the readers of every slot under each plan: a node that follows another plan of the same
    epoch reads slots that are not its own."""
    known: dict[int, list[Plan]] = {}
    for plan in record.plans:
        known.setdefault(plan.epoch, []).append(plan)
    holders = {
        (plan.epoch, lease.task, slot): lease.worker
        for plans in known.values()
        if len(plans) == 1  # the nodes of a contested epoch may follow either plan
        for plan in plans
        for lease in plan.leases
        for slot in lease.slots
    }
    for place, readers in sorted(record.readers.items()):
        epoch, task, slot = place
        if len(known.get(epoch, ())) == 1 and set(readers) != {holders.get(place)}:
            holder, who = holders.get(place, "nobody"), ", ".join(sorted(readers))
            yield f"slot {slot} of {task} is {holder}'s by epoch {epoch}, and {who} read it"


def _slots_once(record: Record) -> Iterator[str]:
    for plan in record.plans:
        leased = Counter((lease.task, slot) for lease in plan.leases for slot in lease.slots)
        for (task, slot), count in leased.items():
            if count > 1:
                yield f"epoch {plan.epoch} leases slot {slot} of {task} {count} times"
        for lease in plan.leases:
            if lease.open_slot >= 0 and lease.open_slot not in lease.slots:
                yield f"epoch {plan.epoch} opens slot {lease.open_slot} of {lease.task} unread"


def _commits_grow(record: Record) -> Iterator[str]:
    for (group, partition), offsets in record.commits.items():
        for before, after in _falls(offsets):
            yield f"{group} committed {after} of partition {partition} after {before}"


def _falls(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return each number that is followed by a lower one, and the lower one."""
    return [(before, after) for before, after in pairwise(numbers) if after < before]


def _memory(record: Record) -> Iterator[str]:
    for role, resident in record.memory.items():
        if resident > MOST_MB * 1_000_000:
            yield f"{role} had {resident / 1e6:.0f} MB resident; {MOST_MB} MB are the bound"


def _commands_once(record: Record) -> Iterator[str]:
    for name, count in Counter(result.id for result in record.results).items():
        if count > 1:
            yield f"{name} has {count}"


def _letters(record: Record) -> Iterator[str]:
    # At least once: a letter that ingress wrote twice around a crash has one origin.
    sent = {garbage.origin for garbage in record.garbage if garbage.origin}
    kept = {Origin(le.partition, le.offset) for le in record.letters if le.topic == QUERIES}
    yield from (f"garbage at {_place(o)} was not kept" for o in sent - kept)
    yield from (f"{_place(o)} was kept and is no garbage" for o in kept - sent)
    yield from (f"of {le.topic}: {le.reason}" for le in record.letters if le.topic != QUERIES)


CHECKS = {
    "every acknowledged query is answered": _answered,
    "no query is answered twice": _answered_once,
    "no answer without a query": _asked_for,
    "a result is right": _right,
    "a contested plan is outbid": _plans_outbid,
    "no node goes back an epoch": _nobody_goes_back,
    "a plan gives each open slot one reader": _slots_once,
    "nodes of one epoch follow the same plan": _one_reader,
    "commits only grow": _commits_grow,
    "memory is bounded": _memory,
    "a command has one result": _commands_once,
    "dead letters are the garbage": _letters,
}


def _wanted(record: Record) -> dict[str, Origin]:
    """Return the origins of acknowledged records, by a readable name."""
    named: Iterable[tuple[str, Asked]] = [
        *record.asked.items(),
        *((f"garbage {i}", asked) for i, asked in enumerate(record.garbage)),
    ]
    return {name: asked.origin for name, asked in named if asked.origin is not None}


def _place(origin: Origin) -> str:
    return f"{origin.partition}/{origin.offset}"


def _told(answer: Answer) -> str:
    why = f" ({answer.reason})" if answer.reason else ""
    made = f"made at {answer.created_s:.3f}, answered at {answer.answered_s:.3f}"
    return f"{answer.id} {outcome_of(answer)}{why}, {made}"
