"""Load from the terminal: send arrivals and inputs in an open loop and summarise the outcomes."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import cycle, islice, repeat
from pathlib import Path
from typing import Any

import click
import numpy as np

from headrace.arrivals.arrival_processes import Arrivals, Recorded, Renewal, Times, read_workload
from headrace.arrivals.load_phases import Phases
from headrace.client.open_loop import Inputs, OpenLoop, run_to_end
from headrace.client.topic_clients import new_id, plans
from headrace.config.pipeline_file import PipelineFile, load_workload
from headrace.config.sizes_file import read_sizes
from headrace.load.load_screen import outcomes_text, watching
from headrace.results.phase_outcomes import PhaseOutcomes, Seen, by_phase, by_policy
from headrace.results.policies_in_force import policies_in_force
from headrace.results.tally import Tally, tally
from headrace.terminal import progress
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.preflight import prepare

DISTINCT = 1000  # inputs generated in advance: generating one takes longer than sending it
WARM_UP_QPS = 15.0

Each = Callable[[float], None]  # called after every step with the seconds since the load's start


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """A load. Without ``payload`` it sends inputs of the file's workload."""

    arrivals: Arrivals
    seed: int = 0
    payload: bytes | None = None
    sizes: Path | None = None  # a distribution; None: the file's
    deadline_s: float | None = None
    slo_class: str = ""
    warm_up_s: float = 0.0  # at ``WARM_UP_QPS`` before the load, not counted
    watch: bool = False  # show the pipeline's status meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """The outcomes of a load, with its length, seed and number of inputs."""

    tally: Tally
    seconds: float
    behind_ms: float  # the largest delay of a query behind its arrival time
    seed: int
    inputs: int  # distinct ones
    began_s: float = 0.0  # epoch
    warm_up: int = 0  # queries before the load, not counted
    arrivals: Phases | None = None
    phases: tuple[PhaseOutcomes, ...] = ()  # of a load in phases; the last one is all of it


@dataclass(frozen=True, slots=True, kw_only=True)
class _Material:
    """Arrival times, query sizes and inputs; the same for every load with the same seed."""

    times: Times
    sizes: Sequence[int]
    inputs: list[tuple[bytes, Any]]
    score: Any

    def sizes_again(self) -> Iterator[int]:
        return cycle(self.sizes) if self.sizes else repeat(1)


def loaded(
    file: PipelineFile,
    kafka: KafkaConfig,
    wish: LoadOptions,
    each: Each = lambda _elapsed_s: None,
) -> LoadResult:
    """Send a load, wait for the answers and return the outcomes.

    Raises ``BrokerError``, ``PipelineError`` and ``SizesError``.
    """
    reads = isinstance(wish.arrivals, Phases) or wish.watch
    prepare(kafka, file.pipeline, "producer", "consumer", *(("operator",) if reads else ()))
    of = _material(file, wish)
    warm_up = _warm_up(file, kafka, wish, of, each)
    with closing(_loop(file, kafka, wish, "load")) as loop:
        _run(loop, file, kafka, wish, of, each)
        sent, answers = loop.accounts()
    in_phases = wish.arrivals if isinstance(wish.arrivals, Phases) else None
    parts: tuple[PhaseOutcomes, ...] = ()
    if in_phases is not None:
        history = plans(kafka, file.pipeline.name)
        seen = Seen(sent=sent, answers=answers, score=of.score, plans=history)
        spans = [
            (p.name, loop.began_s + begin, loop.began_s + end)
            for p, begin, end in in_phases.spans()
        ]
        in_force = [*policies_in_force(history, spans[0][1], spans[-1][2])]
        parts = by_phase([*by_policy(spans, in_force)], seen)
    return LoadResult(
        tally=tally(sent, answers, of.score),
        seconds=_length_s(wish.arrivals, of.times),
        behind_ms=loop.behind_s * 1e3,
        seed=wish.seed,
        inputs=len(of.inputs),
        began_s=loop.began_s,
        warm_up=warm_up,
        arrivals=in_phases,
        phases=parts,
    )


def requested(asked: Mapping[str, Any]) -> LoadOptions:
    """Return the load that the command's options describe; raises ``click.UsageError`` and
    ``ArrivalsError``."""
    return LoadOptions(
        arrivals=_arrivals(asked),
        seed=asked["seed"],
        payload=asked["payload"].read() if asked["payload"] else None,
        sizes=asked["sizes"],
        deadline_s=asked["deadline"],
        slo_class=asked["slo_class"],
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


def _material(file: PipelineFile, wish: LoadOptions) -> _Material:
    rng = np.random.default_rng(wish.seed)
    times = wish.arrivals.drawn(rng)
    sizes = wish.arrivals.sizes if isinstance(wish.arrivals, Recorded) else ()
    sizes = sizes or drawn_sizes(file, wish.sizes, len(times), rng)
    if wish.payload is not None:
        return _Material(times=times, sizes=sizes, inputs=[(wish.payload, None)], score=None)
    workload = load_workload(file)
    inputs = made(workload.queries(rng), max(1, min(DISTINCT, len(times))))
    return _Material(times=times, sizes=sizes, inputs=inputs, score=workload.score)


def drawn_sizes(
    file: PipelineFile, named: Path | None, count: int, rng: np.random.Generator
) -> tuple[int, ...]:
    """Draw ``count`` query sizes from the distribution in ``named`` or of the pipeline file.

    Returns () if queries have no sizes. Raises ``PlanError`` and ``SizesError``.
    """
    if file.pipeline.size is None:
        return ()
    sizes, _ = read_sizes(file, named)
    drawn = rng.choice(sizes.sizes, size=count, p=sizes.probabilities)
    return tuple(int(size) for size in drawn)


def made(queries: Iterator[tuple[bytes, Any]], count: int) -> list[tuple[bytes, Any]]:
    """Generate ``count`` inputs in advance, so that generation does not delay sending."""
    found = []
    with progress("making inputs", count) as advance:
        for done, query in enumerate(islice(queries, count), 1):
            found.append(query)
            advance(done, "")
    return found


def _loop(file: PipelineFile, kafka: KafkaConfig, wish: LoadOptions, what: str) -> OpenLoop:
    return OpenLoop(
        kafka, file.pipeline, new_id(what), deadline_s=wish.deadline_s, slo_class=wish.slo_class
    )


def _warm_up(
    file: PipelineFile, kafka: KafkaConfig, wish: LoadOptions, of: _Material, each: Each
) -> int:
    """Send queries before the load, as a fresh broker is slow while it loads classes and creates
    segments; return their number."""
    times = [number / WARM_UP_QPS for number in range(round(wish.warm_up_s * WARM_UP_QPS))]
    if not times:
        return 0
    with (
        closing(_loop(file, kafka, wish, "warm-up")) as loop,
        progress("warming up", len(times)) as advance,
    ):
        inputs: Inputs = cycle(of.inputs)
        loop.start(times, inputs, of.sizes_again())

        def step() -> None:
            each(-1.0)
            advance(len(loop.answers), "")

        run_to_end(loop, step)
    return len(times)


def _run(
    loop: OpenLoop,
    file: PipelineFile,
    kafka: KafkaConfig,
    wish: LoadOptions,
    of: _Material,
    each: Each,
) -> None:
    """Send the load and wait for its answers; show its progress, in seconds."""
    total = math.ceil(_length_s(wish.arrivals, of.times))
    shown = watching(kafka, file) if wish.watch else progress
    with shown("sending, seconds", total) as advance:
        loop.start(of.times.tolist(), cycle(of.inputs), of.sizes_again())

        def step() -> None:
            each(loop.elapsed_s)
            advance(min(total, int(loop.elapsed_s)), _where(loop, wish.arrivals))

        run_to_end(loop, step)


def _where(loop: OpenLoop, arrivals: Arrivals) -> str:
    """Return the progress of the load and the outcomes so far as text."""
    said = f"{loop.sent} sent, {outcomes_text(loop.answers.values())}"
    if not isinstance(arrivals, Phases):
        return said
    name, rate_qps = arrivals.at(loop.elapsed_s)
    return f"{name} {rate_qps:.0f}/s; {said}"


def _length_s(arrivals: Arrivals, times: Times) -> float:
    if isinstance(arrivals, Phases):
        return arrivals.seconds
    return float(times[-1]) if len(times) else 0.0
