"""Compare the latency that is composed of a plan's profile with what its queries take live (C27).

    python -m benchmarks.composed_latency [--plans 20] [--queries 60] [--seed 0] [--json OUT]

Random query plans of examples/postcode/planned.yaml (configuration, placement; whole GPUs) are
opened by hand, one after the other, on a local broker with every tier and link of the file. Just
before, the operators of the plan run on the samples that are sent then, one at a time, in this
process: their seconds and bytes are composed for the placement, sample by sample
(control/policies/compass/search/composition.py). Then the queries go one by one, each after the
answer to the one before, so that none waits for another. A query's live latency is that of its
answer; hops over Kafka are in it, and in no composition. Exit code 1 if the p95 of a plan differs
by more than ``WITHIN``.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from control.controller.session_commands import OPEN
from control.policies.compass.search.composition import Deployment, hop_bytes
from control.policies.compass.search.placement_factors import session_deployment
from control.policies.compass.search.prefix_cache import PrefixCache
from control.problem.session_space import SessionSpace
from headrace.client.exchange import Exchange
from headrace.client.formats import reader_of
from headrace.client.give_command import give
from headrace.client.open_queries import OpenQueries
from headrace.client.session_view import close_session, serving
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file, search_space
from headrace.config.user_functions import load_combine, load_workload
from headrace.fidelity.live_run import LiveEnvironment, staged
from headrace.machine import machine
from headrace.planning.recorded_truth import read_truth
from headrace.results.tally import latency_ms
from headrace.roles.profiling_role import Operators
from operators.join import as_list
from operators.profiler import Profiler, Sample
from schemas.records import ANSWERED, Answer, Query

FOLDER = Path(__file__).parents[1] / "examples" / "postcode"
WITHIN = 0.10
LONGEST_S = 0.6  # of the plans drawn, by the recorded profiles
SERVES_WITHIN_S = 60.0
ANSWERED_WITHIN_S = 10.0
WARM_UP = 5  # queries of a session that count nowhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A plan: composed and live latency of its queries, milliseconds, and the part of the
    operators in each, in the mean; the rest is links, and live the hops over Kafka."""

    plan: str
    queries: int
    composed_mean_ms: float
    live_mean_ms: float
    composed_p95_ms: float
    live_p95_ms: float
    composed_run_ms: float
    live_run_ms: float

    @property
    def error(self) -> float:
        """The live p95 over the composed one, less 1."""
        return self.live_p95_ms / self.composed_p95_ms - 1


class Composer:
    """Composes latencies of samples from the seconds and bytes of a plan's operators."""

    def __init__(self, file: PipelineFile, sessions: SessionSpace) -> None:
        self._space = sessions.space
        shape = self._space.configuration_count, len(self._space.stages)
        self.deployment: Deployment = session_deployment(sessions, np.zeros(shape))
        self._operators = Operators(file, sessions, "cpu")
        self._profiler = Profiler(
            file.pipeline, self._space, PrefixCache(0), load_combine(file.pipeline) or as_list,
            load_workload(file).score,
        )  # fmt: skip

    def latencies(
        self, configuration: int, placement: int, samples: Sequence[Sample]
    ) -> tuple[list[float], list[float]]:
        """Return the composed milliseconds of each sample, and its operators' part of them; the
        first ``WARM_UP`` run twice."""
        found, ran = [], []
        slowdown = self.deployment.slowdown[:, placement]
        for sample in (*samples[:WARM_UP], *samples):
            seen = self._profiler.profile(configuration, "composed", [sample], self._operators.run)
            seconds = np.array([[cost.seconds for cost in seen.stages]])
            output = [cost.bytes for cost in seen.stages]
            sent = np.array([hop_bytes(self._space, seen.input_bytes, output)])
            found.append(1e3 * float(self.deployment.latency(seconds, sent)[0, placement]))
            run_s = seconds[0] * slowdown
            ran.append(1e3 * max(float(run_s[path].sum()) for path in self.deployment.paths))
        return found[WARM_UP:], ran[WARM_UP:]


def for_one_session(folder: Path) -> PipelineFile:
    """Return the example in a folder of its own, with the devices of one session."""
    shutil.copytree(FOLDER, folder)
    path = folder / "planned.yaml"
    row = msgspec.yaml.decode(path.read_bytes())
    for tier in row["cluster"]["tiers"].values():
        if tier.get("per") == "session":
            tier["count"] = 1
    path.write_bytes(msgspec.yaml.encode(row))
    return read_pipeline_file(path)


def drawn(
    space: SessionSpace, deployment: Deployment, count: int, seed: int
) -> list[tuple[int, int]]:
    """Return random (configuration, placement)s that take at most ``LONGEST_S`` as recorded."""
    truth = read_truth(FOLDER / "planned-truth.json", space.space)
    latency = deployment.latency(truth.seconds, truth.sent)
    fitting = np.argwhere(latency <= LONGEST_S)
    chosen = np.random.default_rng(seed).choice(len(fitting), count, replace=False)
    return [(int(c), int(p)) for c, p in fitting[chosen]]


def as_plan(space: SessionSpace, configuration: int, placement: int) -> dict[str, Any]:
    """Return a query plan made by hand, on whole GPUs, as ``session open --plan`` takes it."""
    tiers = space.space.placed(placement)
    return {
        "stages": [[task, tier] for task, tier in tiers.items()],
        "config": space.space.named(configuration),
        "shares": {task: 1 for task, tier in tiers.items() if not space.tiers[tier].own},
    }


def measured(stage: LiveEnvironment, count: int, queries: int, seed: int) -> list[Row]:
    """Measure every plan. Raises ``NoAnswer`` and what opening a session raises."""
    file, space = stage.file, search_space(stage.file)
    composer = Composer(file, space)
    rows = []
    inputs = islice(load_workload(file).queries(np.random.default_rng(seed)), queries)
    samples = [Sample(number, payload, truth) for number, (payload, truth) in enumerate(inputs)]
    waiting = OpenQueries(reader_of(file.pipeline))
    with closing(Exchange(stage.kafka, file.pipeline, waiting)) as exchange:
        for number, (c, p) in enumerate(drawn(space, composer.deployment, count, seed)):
            session, plan = f"plan-{number}", json.dumps(as_plan(space, c, p))
            composed, ran = composer.latencies(c, p, samples)
            asked = {"session": session, "plan": plan, "slo": "5s"}
            opened = give(file, stage.kafka, OPEN, asked)
            if not opened.ok:
                raise RuntimeError(f"{session} was refused: {opened.message}")
            serving(file, stage.kafka, session, SERVES_WITHIN_S)
            answers = answered(exchange, waiting, session, samples)
            close_session(file, stage.kafka, session)
            parts = float(np.mean(ran)), float(np.mean([run_ms(answer) for answer in answers]))
            live = [latency_ms(answer) for answer in answers]
            rows.append(row(named(space, c, p), composed, live, parts))
            print(text(rows[-1]), flush=True)
    return rows


def answered(
    exchange: Exchange, waiting: OpenQueries, session: str, samples: Sequence[Sample]
) -> list[Answer]:
    """Return the answers to the samples, each sent after the answer to the one before; what the
    first ``WARM_UP`` took is not counted."""
    found = []
    for turn, sample in enumerate((*samples[:WARM_UP], *samples)):
        query = Query(payload=sample.payload, id=f"{session}-{turn}", session=session)
        future = waiting.add(query.id, time.time(), ANSWERED_WITHIN_S)
        exchange.send(query)
        answer = future.result()
        if turn >= WARM_UP and answer.outcome == ANSWERED:
            found.append(answer)
    return found


def run_ms(answer: Answer) -> float:
    """Return the milliseconds of the operators on the longest path of an answer."""
    return 1e3 * max(sum(hop.finished_s - hop.started_s for hop in path) for path in answer.paths)


def row(
    plan: str, composed: Sequence[float], live: Sequence[float], parts: tuple[float, float]
) -> Row:
    """Return the row of a plan, of latencies in milliseconds; ``parts``: of the operators, in the
    mean, composed and live."""
    return Row(
        plan=plan,
        queries=len(live),
        composed_mean_ms=float(np.mean(composed)),
        live_mean_ms=float(np.mean(live)),
        composed_p95_ms=float(np.quantile(composed, 0.95)),
        live_p95_ms=float(np.quantile(live, 0.95)),
        composed_run_ms=parts[0],
        live_run_ms=parts[1],
    )


def named(space: SessionSpace, configuration: int, placement: int) -> str:
    """Return a plan as text: setting on tier, for every task."""
    tiers = space.space.placed(placement).items()
    return ", ".join(f"{space.setting(task, configuration)} on {tier}" for task, tier in tiers)


def text(one: Row) -> str:
    """Return a row as a line."""
    return (
        f"mean {one.composed_mean_ms:6.1f} composed, {one.live_mean_ms:6.1f} live (operators "
        f"{one.composed_run_ms:.1f}, {one.live_run_ms:.1f}); "
        f"p95 {one.composed_p95_ms:6.1f} composed, {one.live_p95_ms:6.1f} live "
        f"({100 * one.error:+5.1f} %) ms; {one.plan}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 if a plan's p95 differs by too much."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--plans", type=int, default=20, help="(20)")
    parser.add_argument("--queries", type=int, default=60, help="of each plan (60)")
    parser.add_argument("--seed", type=int, default=0, help="of plans and inputs (0)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="Write the rows here.")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="headrace-composed-") as folder:
        file = for_one_session(Path(folder) / "postcode")
        with staged(file, file.pipeline.policy, 1.0) as stage:
            rows = measured(stage, options.plans, options.queries, options.seed)
    if options.json:
        found = {"machine": machine(), "rows": [asdict(one) for one in rows]}
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    met = sum(abs(one.error) <= WITHIN for one in rows)
    worst = max(rows, key=lambda one: abs(one.error))
    print(
        f"p95 within {100 * WITHIN:g} % for {met} of {len(rows)} plans; the worst "
        f"{100 * worst.error:+.1f} %"
    )
    return int(met < len(rows))


if __name__ == "__main__":
    sys.exit(main())
