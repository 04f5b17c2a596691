"""The samples of a profiler: the workload's, and sessions' own recent inputs."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from control.problem.sample_sets import WORKLOAD, InputSet, input_set
from headrace.errors import PipelineError
from headrace.roles.input_topic.recent_inputs import InputsBetween, RecentInputs
from operators.profiler import Sample

MOST_SETS = 8  # of samples in memory, of the workload and of recent inputs
ReadBack = Callable[[InputSet], RecentInputs | InputsBetween]


class Samples:
    """The samples by set, in one order: the workload's, drawn by seed, and sessions' own inputs,
    which ``read_back`` opens. The last used ``MOST_SETS`` of each are kept."""

    def __init__(self, workload: Any, read_back: ReadBack) -> None:
        self._workload = workload  # None: the file has none
        self._open: OrderedDict[str, tuple[Iterator[Any], list[Sample]]] = OrderedDict()
        self._read_back = read_back
        self._recent: OrderedDict[str, RecentInputs | InputsBetween] = OrderedDict()

    def of(self, name: str, first: int, upto: int) -> list[Sample] | None:
        """Return samples ``first`` to ``upto - 1``, fewer at the end of the set; None: they are not
        there yet.

        Raises ``PipelineError`` for an unknown set, and for a query without a truth; what the
        workload raises, and ``BrokerError``. After an error the set is opened anew: what had been
        read of it is lost.
        """
        try:
            if (found := input_set(name)) is not None:
                return self._inputs(name, found).of(first, upto)
            return self._drawn(name, first, upto)
        except BaseException:
            self._open.pop(name, None)
            if (reader := self._recent.pop(name, None)) is not None:
                reader.close()
            raise

    def _drawn(self, name: str, first: int, upto: int) -> list[Sample]:
        if name not in self._open:
            seed = name.removeprefix(WORKLOAD)
            if self._workload is None:
                raise PipelineError(f"no sample set {name!r}: the pipeline file has no workload")
            if not (name.startswith(WORKLOAD) and seed.isdecimal()):
                raise PipelineError(f"no sample set {name!r}; name one as {WORKLOAD}7")
            queries = self._workload.queries(np.random.default_rng(int(seed)))
            self._open[name] = iter(queries), []
            if len(self._open) > MOST_SETS:
                self._open.popitem(last=False)
        self._open.move_to_end(name)
        drawing, drawn = self._open[name]
        for query in islice(drawing, max(0, upto - len(drawn))):
            drawn.append(_sample(len(drawn), query))
        return drawn[first:upto]

    def _inputs(self, name: str, inputs: InputSet) -> RecentInputs | InputsBetween:
        if name not in self._recent:
            self._recent[name] = self._read_back(inputs)
            if len(self._recent) > MOST_SETS:
                self._recent.popitem(last=False)[1].close()
        self._recent.move_to_end(name)
        return self._recent[name]


def _sample(number: int, query: Any) -> Sample:
    """Return a workload's query as a sample. A text of two letters unpacks, too, and is no pair."""
    if not isinstance(query, tuple | list) or len(query) != 2:
        raise PipelineError(
            f"query {number} of the workload is no pair of payload and truth; yield both from its "
            "method queries (with profiling: {truth: reference} the truth may be None)"
        )
    return Sample(number, query[0], query[1])
