"""Load from the terminal: send arrivals and inputs in an open loop and summarise the outcomes."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, repeat
from pathlib import Path
from typing import Any

import click
import numpy as np

from headrace.arrivals.arrival_processes import Arrivals, Recorded, Renewal, Times
from headrace.arrivals.arrivals_file import read_workload
from headrace.arrivals.load_phases import Phases
from headrace.client.formats import payload_from
from headrace.client.open_loop import OpenLoop, generated, run_to_end
from headrace.client.topic_clients import new_id, retained_plans
from headrace.config.pipeline_file import PipelineFile
from headrace.config.sizes_file import read_sizes
from headrace.config.user_functions import load_workload
from headrace.errors import PipelineError
from headrace.load.load_result import LoadResult, answers_text, awaited_text
from headrace.load.load_screen import watching
from headrace.results.phase_outcomes import (
    PhaseOutcomes,
    Seen,
    by_phase,
    by_policy,
    policies_in_force,
)
from headrace.results.tally import Score, Sent, tally
from headrace.terminal import progress, say
from schemas.records import Answer, Value
from streams.kafka.admin.preflight import prepare
from streams.kafka.kafka_config import KafkaConfig

DISTINCT = 1000  # inputs generated in advance: generating one takes longer than sending it
WARM_UP_QPS = 15.0

Each = Callable[[float], None]  # called after every step with the seconds since the load's start


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """A load. ``payload`` is as ``headrace send`` takes it; without one, the load sends inputs of
    the file's workload."""

    arrivals: Arrivals
    seed: int = 0
    payload: bytes | None = None
    sizes: Path | None = None  # a distribution; None: the file's
    deadline_s: float | None = None
    slo_class: str = ""
    session: str = ""
    workload: str = ""  # "package.module:Class"; "": the file's
    labels: bool = False  # send the truths to the labels topic
    warm_up_s: float = 0.0  # at ``WARM_UP_QPS`` before the load, not counted
    watch: bool = False  # show the pipeline's status meanwhile


def loaded(
    file: PipelineFile,
    kafka: KafkaConfig,
    options: LoadOptions,
    each: Each = lambda _elapsed_s: None,
) -> LoadResult:
    """Send a load, wait for the answers and return the outcomes.

    Raises ``BrokerError``, ``CodecError``, ``PipelineError`` and ``SizesError``.
    """
    reads = isinstance(options.arrivals, Phases) or options.watch
    prepare(kafka, file.pipeline, "producer", "consumer", *(("operator",) if reads else ()))
    if options.labels and file.pipeline.labels is None:
        raise PipelineError(f"{file.path}: labels are not scored; add a line such as: labels: {{}}")
    load = _Load(file, kafka, options, each, _material(file, options))
    warm_up = load.warm_up()
    with load.loop("load") as loop:
        load.run(loop)
        sent, answers = loop.accounts()
    return LoadResult(
        tally=tally(sent, answers, load.of.score),
        seconds=load.seconds,
        behind_ms=loop.behind_s * 1e3,
        seed=options.seed,
        inputs=len(load.of.inputs),
        began_s=loop.began_s,
        warm_up=warm_up,
        arrivals=load.in_phases,
        phases=load.phases(loop.began_s, sent, answers),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Material:
    """Arrival times, query sizes and inputs; the same for every load with the same seed."""

    times: Times
    sizes: Sequence[int]
    inputs: list[tuple[Value, Any]]
    score: Score | None

    def start(self, loop: OpenLoop, times: Sequence[float]) -> None:
        """Start a loop with these inputs and sizes, from the first ones on."""
        loop.start(times, cycle(self.inputs), cycle(self.sizes) if self.sizes else repeat(1))


@dataclass(frozen=True, slots=True)
class _Load:
    """A load with its material; ``each`` is called after every step."""

    file: PipelineFile
    kafka: KafkaConfig
    options: LoadOptions
    each: Each
    of: _Material

    @property
    def in_phases(self) -> Phases | None:
        return self.options.arrivals if isinstance(self.options.arrivals, Phases) else None

    @property
    def seconds(self) -> float:
        """The length of the load."""
        if self.in_phases is not None:
            return self.in_phases.seconds
        return float(self.of.times[-1]) if len(self.of.times) else 0.0

    def loop(self, what: str) -> OpenLoop:
        """Return an open loop whose queries' ids begin with ``what``."""
        options = self.options
        return OpenLoop(
            self.kafka, self.file.pipeline, new_id(what),
            deadline_s=options.deadline_s, slo_class=options.slo_class, session=options.session,
            labels=options.labels,
        )  # fmt: skip

    def warm_up(self) -> int:
        """Send queries before the load, as a fresh broker is slow while it loads classes and
        creates segments; return their number."""
        count = round(self.options.warm_up_s * WARM_UP_QPS)
        if not count:
            return 0
        with self.loop("warm-up") as loop, progress("warming up", count) as advance:
            self.of.start(loop, [number / WARM_UP_QPS for number in range(count)])

            def step() -> None:
                self.each(-1.0)
                advance(len(loop.answers), "")

            run_to_end(loop, step)
        return count

    def run(self, loop: OpenLoop) -> None:
        """Send the load and wait for its answers; show its progress, in seconds."""
        total = math.ceil(self.seconds)
        shown = watching(self.kafka, self.file) if self.options.watch else progress
        with shown("sending, seconds", total) as advance:
            self.of.start(loop, self.of.times.tolist())

            def step() -> None:
                self.each(loop.elapsed_s)
                advance(min(total, int(loop.elapsed_s)), self._where(loop))

            run_to_end(loop, step)

    def _where(self, loop: OpenLoop) -> str:
        """Return the progress of the load and the outcomes so far as text."""
        said = f"{loop.sent} sent, {answers_text(loop.answers.values())}"
        if loop.all_sent:
            return f"{said}; {awaited_text(loop.sent - len(loop.answers))}"
        if self.in_phases is None:
            return said
        name, rate_qps = self.in_phases.at(loop.elapsed_s)
        return f"{name} {rate_qps:.0f}/s; {said}"

    def phases(
        self, began_s: float, sent: Sequence[Sent], answers: Mapping[str, Answer]
    ) -> tuple[PhaseOutcomes, ...]:
        """Return the outcomes by phase and policy, and of all queries; () without phases."""
        if self.in_phases is None:
            return ()
        history = retained_plans(self.kafka, self.file.pipeline.name)
        in_force = [*policies_in_force(history, began_s, began_s + self.seconds)]
        spans = [
            (phase.name, began_s + begin, began_s + end)
            for phase, begin, end in self.in_phases.spans()
        ]
        seen = Seen(sent=sent, answers=answers, score=self.of.score, plans=history)
        return by_phase([*by_policy(spans, in_force)], seen)


def load_options(asked: Mapping[str, Any]) -> LoadOptions:
    """Return the load that the command's options describe; raises ``click.UsageError`` and
    ``ArrivalsError``."""
    return LoadOptions(
        arrivals=_arrivals(asked),
        seed=asked["seed"],
        payload=asked["payload"].read() if asked["payload"] else None,
        sizes=asked["sizes"],
        deadline_s=asked["deadline"],
        slo_class=asked["slo_class"],
        session=asked["session"],
        workload=asked["workload"] or "",
        labels=asked["labels"],
        warm_up_s=asked["warm_up"],
        watch=asked["watch"],
    )


def _arrivals(asked: Mapping[str, Any]) -> Arrivals:
    own = [name for name in ("arrivals", "phases") if asked[name] is not None]
    if len(own) > 1 or (own and (asked["rate"] or asked["seconds"])):
        raise click.UsageError(f"--{own[0]} has its own rates and length; leave the others out")
    if asked["phases"] is not None:
        phases: Phases = asked["phases"]
        return phases
    if asked["arrivals"] is not None:
        return read_workload(asked["arrivals"])
    if asked["rate"] is None or asked["seconds"] is None:
        raise click.UsageError("give --rate and --seconds, or --phases, or --arrivals")
    return Renewal(asked["rate"], asked["seconds"])


def _material(file: PipelineFile, options: LoadOptions) -> _Material:
    rng = np.random.default_rng(options.seed)
    times = options.arrivals.drawn(rng)
    sizes = options.arrivals.sizes if isinstance(options.arrivals, Recorded) else ()
    sizes = sizes or drawn_sizes(file, options.sizes, len(times), rng)
    if options.payload is not None:
        payload = payload_from(options.payload, file.pipeline.input, "the load's --input")
        return _Material(times=times, sizes=sizes, inputs=[(payload, None)], score=None)
    named = replace(file, workload=options.workload or file.workload)
    workload = load_workload(named, "send one file again and again with --input FILE")
    inputs = inputs_of(workload, len(times), sizes, rng)
    return _Material(times=times, sizes=sizes, inputs=inputs, score=workload.score)


def inputs_of(
    workload: Any, count: int, sizes: Sequence[int], rng: np.random.Generator
) -> list[tuple[Value, Any]]:
    """Return inputs with their truths, to be sent in order and again from the first one on.

    A workload that has the method ``sized_queries(size, rng)`` gives each query an input of its
    size. Raises ``PipelineError`` if it has none of a size.
    """
    of_size = getattr(workload, "sized_queries", None)
    if of_size is None or not sizes:
        return generated(workload.queries(rng), max(1, min(DISTINCT, count)))
    made = {size: cycle(_of_size(of_size, size, rng)) for size in sorted(set(sizes))}
    return [next(made[size]) for size in sizes]


def _of_size(
    of_size: Callable[..., Any], size: int, rng: np.random.Generator
) -> list[tuple[Value, Any]]:
    found = list(of_size(size, rng))
    if not found:
        raise PipelineError(
            f"the workload's sized_queries has no query of the size {size}; it must have one at "
            "least of each size up to size.most"
        )
    return found


def drawn_sizes(
    file: PipelineFile, named: Path | None, count: int, rng: np.random.Generator
) -> tuple[int, ...]:
    """Draw ``count`` query sizes from the distribution in ``named`` or of the pipeline file.

    Returns () if queries have no sizes, or if none is known: each has then size 1, as that of a
    client that sends no size. Raises ``SizesError``.
    """
    if file.pipeline.size is None:
        return ()
    if named is None and file.sizes is None:
        say("every query has size 1: neither --sizes nor `sizes` in the pipeline file names sizes")
        return ()
    sizes, _ = read_sizes(file, named)
    drawn = rng.choice(sizes.sizes, size=count, p=sizes.probabilities)
    return tuple(int(size) for size in drawn)
