"""The results of profilers by sample set: those on a session's samples, and the history.

Results stay on a compacted topic, so that no search requests a finished block of samples again. The
profiles of other sample sets are the history of a search. So are those of another search space (a
knob was removed, or an option of one added or removed), matched by the names of their options. Each
choice of options of the removed knobs is then a separate set. Results that lack a knob of this
space, or have an option that it lacks, are left out.

The age of results is their order on the topic, and a block belongs to the search that it names:
clocks of profilers may differ from each other and from the controller's.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np

from control.policies.compass.search.camo import Past, Profiled
from control.policies.compass.search.composition import hop_bytes
from control.policies.compass.search.profile_run import ProfileRun
from control.policies.compass.search.search_step import same_search
from control.policies.compass.search.sequential_test import StopRule, Tested, plain
from control.problem.sample_sets import PING, input_set
from control.problem.space import Space, same_truth
from schemas.records import ProfileResult

Block = tuple[int, int]  # configuration, first sample


@dataclass(slots=True)
class SampleSet:
    """The newest result of each block of one sample set."""

    inputs: bool = False  # those of a session
    blocks: dict[Block, ProfileResult] = field(default_factory=dict)
    newest: int = 0  # the place of its newest result among all

    def past(self, space: Space) -> Past:
        """Return the set's profiles as a past search."""
        by: dict[int, list[ProfileResult]] = {}
        for (configuration, _), result in sorted(self.blocks.items()):
            if result.scores:
                by.setdefault(configuration, []).append(result)
        means = [plain(np.array([s for each in rows for s in each.scores])) for rows in by.values()]
        return Past(
            configuration=np.array(list(by), dtype=np.int64),
            accuracy=np.array([each.mean for each in means]),
            error=np.array([each.variance for each in means]),
            seconds=np.array([per_sample(rows, "seconds", space) for rows in by.values()]).reshape(
                len(by), len(space.stages)
            ),
        )


class ProfileStore:
    """All known results that a search in one space may use, by sample set."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._sets: dict[str, SampleSet] = {}
        self._kept = 0  # results

    def keep(self, result: ProfileResult) -> None:
        """Add a result; ignore one judged by another truth, or of a request without samples."""
        if result.first == PING or not same_truth(result.space, self._space.digest):
            return
        configuration = self._space.index_of(result.options)
        if configuration is None:
            return
        name = result.sample_set
        if result.space != self._space.digest:  # history, never a block of this space's tests
            if not {stage.name for stage in self._space.stages} <= result.seconds.keys():
                return
            name = f"{result.space}/{self._removed(result)}/{name}"
        inputs = input_set(result.sample_set) is not None
        kept = self._sets.setdefault(name, SampleSet(inputs))
        known = kept.blocks.get((configuration, result.first))
        if result.error and known is not None and not known.error:
            return  # of a second profiler that got the request
        kept.blocks.pop((configuration, result.first), None)
        kept.blocks[configuration, result.first] = result  # in the order of the topic
        self._kept += 1
        kept.newest = self._kept

    def _removed(self, result: ProfileResult) -> str:
        """Return the options of a result whose knobs this space lacks."""
        known = {f"{knob.stage}.{knob.name}" for knob in self._space.knobs}
        return " ".join(f"{n}={o}" for n, o in sorted(result.options.items()) if n not in known)

    def forget_errors(self) -> None:
        """Discard failed blocks, whose cause may be fixed."""
        for each in self._sets.values():
            each.blocks = {at: result for at, result in each.blocks.items() if not result.error}

    def reopen(self, sample_set: str, rule: StopRule, search: str) -> None:
        """Discard the blocks, except those of this search, at which a set of labelled inputs ended:
        it has grown since."""
        found = input_set(sample_set)
        if found is None or not found.labelled or sample_set not in self._sets:
            return
        kept = self._sets[sample_set]
        kept.blocks = {
            at: each
            for at, each in kept.blocks.items()
            if each.error or same_search(each.search, search) or len(each.scores) >= rule.look
        }

    def blocks(self, sample_set: str) -> Mapping[Block, ProfileResult]:
        """Return the results of a sample set."""
        found = self._sets.get(sample_set)
        return {} if found is None else found.blocks

    def earlier(self, sample_set: str, search: str) -> Mapping[Block, ProfileResult]:
        """Return the results of a sample set that came before the first one of a search."""
        blocks = self.blocks(sample_set).items()
        return dict(takewhile(lambda each: not same_search(each[1].search, search), blocks))

    def past(self, sample_set: str, most: int | None = None) -> tuple[Past, ...]:
        """Return the profiles of the other sample sets, the newest ``most``, the oldest first."""
        others = [name for name in self._by_age() if name != sample_set]
        newest = others if most is None else others[len(others) - min(most, len(others)) :]
        return tuple(self._sets[name].past(self._space) for name in newest)

    def forget(self, used: Collection[str], most: int) -> None:
        """Discard the sets of sessions' inputs that are not ``used``, except the newest ``most``,
        from which searches learn."""
        left = [name for name in self._by_age() if self._sets[name].inputs and name not in used]
        for name in left[: max(0, len(left) - most)]:
            del self._sets[name]

    def _by_age(self) -> list[str]:
        """Return the sets that have blocks, the oldest first."""
        found = [name for name, each in self._sets.items() if each.blocks]
        return sorted(found, key=lambda name: self._sets[name].newest)


def decided_profiles(
    space: Space, blocks: Mapping[Block, ProfileResult], floor: float, rule: StopRule
) -> tuple[Profiled, ...]:
    """Return the profiles whose test against ``floor`` the known blocks of a set decide."""
    found = []
    for configuration in dict.fromkeys(each for each, _ in blocks):
        run = ProfileRun(floor, rule)
        rows = [blocks[at] for at in sorted(blocks) if at[0] == configuration]
        if any(row.error or not row.scores for row in rows):
            continue
        for row in rows:
            run.add(row.first, row.scores)
        if not run.wanted():
            found.append(profiled(space, configuration, run.tested, rows))
    return tuple(found)


def profiled(
    space: Space, configuration: int, tested: Tested, rows: Sequence[ProfileResult]
) -> Profiled:
    """Return the profile of a configuration from the blocks of its test."""
    output = per_sample(rows, "bytes", space)
    given = sum(each.input_bytes for each in rows) / sum(len(each.scores) for each in rows)
    return Profiled(
        configuration=configuration,
        tested=tested,
        seconds=tuple(per_sample(rows, "seconds", space)),
        sent=hop_bytes(space, given, output),
    )


def per_sample(rows: Sequence[ProfileResult], what: str, space: Space) -> list[float]:
    """Return the mean of ``seconds`` or ``bytes`` per sample, by stage."""
    samples = sum(len(each.scores) for each in rows)
    return [
        sum(getattr(each, what).get(s.name, 0.0) for each in rows) / samples for s in space.stages
    ]
