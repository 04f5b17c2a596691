"""Compare the latency that is composed of a plan's profile with what its queries take live (C27).

    python -m benchmarks.composed_latency [--plans 20] [--queries 60] [--seed 0] [--json OUT]

Random query plans of examples/postcode/planned.yaml (configuration, placement; whole GPUs) are
opened by hand, one after the other, on a local broker with every tier and link of the file. Just
before, the plan's operators run on the same samples, one at a time, in this process: their seconds
and bytes are composed for the placement, sample by sample
(control/policies/compass/search/composition.py). They run twice: without pauses, as in a profile,
and each after a pause, as live, where an operator waits for the next query and finds cold caches.
Then the queries are sent one by one, each after the answer to the previous one, so that none waits
for another. A query's live latency is that of its answer.

The first ``OBSERVED`` queries of a plan are not judged: they show the paces of its operators, as
workers' reports show them to the control app (control/estimation/operator_paces.py), and the
profile's seconds times these paces make the corrected latencies. Exit code 1 if the p95 of a plan
differs by more than ``WITHIN`` from the corrected one; then each miss is printed with the part of
the operators in it. Beside it stand the p95 composed of the profile alone, and that composed of
what the operators took live, which tells how far the rule of composition itself errs. 20 plans of
60 queries need ten minutes of a machine with nothing beside it.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from control.controller.session_commands import CLOSE, OPEN
from control.estimation.operator_paces import ObservedPaces, StageSeconds, variant_of
from control.policies.compass.search.composition import Deployment, Floats, hop_bytes
from control.policies.compass.search.placement_factors import session_deployment
from control.policies.compass.search.prefix_cache import PrefixCache
from control.problem.paces import OTHERS, Paces
from control.problem.session_space import SessionSpace
from headrace.client.exchange import Exchange
from headrace.client.formats import answer_reader
from headrace.client.give_command import give
from headrace.client.open_queries import OpenQueries
from headrace.client.session_view import serving
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file, search_space
from headrace.config.user_functions import load_combine, load_workload
from headrace.fidelity.live_run import LiveEnvironment, live_environment
from headrace.machine import machine
from headrace.planning.recorded_truth import read_truth
from headrace.results.tally import latency_ms
from headrace.roles.profiling.loaded_operators import Operators
from operators.join import as_list
from operators.profiler import Profiler, Sample
from schemas.records import ANSWERED, Answer, Query

FOLDER = Path(__file__).parents[1] / "examples" / "postcode"
WITHIN = 0.10
LONGEST_S = 0.6  # of the plans drawn, by the recorded profiles
SERVES_WITHIN_S = 60.0
ANSWERED_WITHIN_S = 10.0
WARM_UP = 5  # queries of a session that are not counted
OBSERVED = 30  # queries after them, by which the paces are known
PAUSE_S = 0.05  # an operator's wait for the next query, about that of the plans drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A plan: composed and live latency of its queries, milliseconds, and the part of the
    operators in each. ``corrected``: composed with ``paces``, by "variant on tier"; ``unpaused``:
    composed of operators that ran without pauses."""

    plan: str
    queries: int
    composed_mean_ms: float
    live_mean_ms: float
    composed_p95_ms: float
    live_p95_ms: float
    corrected_p95_ms: float
    unpaused_p95_ms: float
    composed_run_ms: float
    live_run_ms: float
    corrected_run_ms: float
    unpaused_run_ms: float
    composed_run_p95_ms: float
    live_run_p95_ms: float
    corrected_run_p95_ms: float
    paces: Mapping[str, float]

    @property
    def error(self) -> float:
        """The live p95 over the corrected one, less 1."""
        return self.live_p95_ms / self.corrected_p95_ms - 1

    @property
    def profile_error(self) -> float:
        """The same against the p95 composed of the profile alone."""
        return self.live_p95_ms / self.composed_p95_ms - 1

    @property
    def unpaused_error(self) -> float:
        """The same against the p95 composed of operators that ran without pauses."""
        return self.live_p95_ms / self.unpaused_p95_ms - 1

    @property
    def rule_error(self) -> float:
        """The same against the operators' live p95 with the composed links and hops."""
        links_ms = self.composed_mean_ms - self.composed_run_ms
        return self.live_p95_ms / (self.live_run_p95_ms + links_ms) - 1


@dataclass(frozen=True, slots=True)
class Latencies:
    """Milliseconds of each query, and the operators' part of them on its longest path."""

    total: Sequence[float]
    run: Sequence[float]


@dataclass(frozen=True, slots=True)
class Profile:
    """Seconds on the reference device and bytes of a plan's samples: samples x stages, or hops."""

    seconds: Floats
    sent: Floats


class Composer:
    """Composes latencies of samples from the seconds and bytes of a plan's operators."""

    def __init__(self, file: PipelineFile, sessions: SessionSpace) -> None:
        self._sessions, self._space = sessions, sessions.space
        self.deployment = self._deployment({})
        self._operators = Operators(file, sessions, "cpu")
        self._profiler = Profiler(
            file.pipeline, self._space, PrefixCache(0), load_combine(file.pipeline) or as_list,
            load_workload(file).score,
        )  # fmt: skip

    def _deployment(self, paces: Paces) -> Deployment:
        shape = self._space.configuration_count, len(self._space.stages)
        return session_deployment(self._sessions.with_paces(paces), np.zeros(shape))

    def profile(self, configuration: int, samples: Sequence[Sample], pause_s: float) -> Profile:
        """Return the profile of the samples, whose operators run ``pause_s`` after each other; the
        first ``WARM_UP`` run twice."""

        def run(*asked: Any) -> tuple[Sequence[Any], float]:
            time.sleep(pause_s)
            return self._operators.run(*asked)

        seconds, sent = [], []
        for sample in (*samples[:WARM_UP], *samples):
            seen = self._profiler.profile(configuration, "composed", [sample], run)
            seconds.append([cost.seconds for cost in seen.stages])
            output = [cost.bytes for cost in seen.stages]
            sent.append(hop_bytes(self._space, seen.input_bytes, output))
        return Profile(np.array(seconds[WARM_UP:]), np.array(sent[WARM_UP:]))

    def latencies(
        self, configuration: int, placement: int, profile: Profile, paces: Paces
    ) -> Latencies:
        """Return the composed latencies of a profile's samples at these paces."""
        deployment = self._deployment(paces)
        of = [configuration] * len(profile.seconds)
        total = deployment.latency(profile.seconds, profile.sent, of)[:, placement]
        run_s = profile.seconds * deployment.factors(of)[:, :, placement]
        longest = np.max([run_s[:, path].sum(axis=1) for path in deployment.paths], axis=0)
        return Latencies((1e3 * total).tolist(), (1e3 * longest).tolist())

    def observed(
        self, configuration: int, placement: int, profile: Profile, answers: Sequence[Answer]
    ) -> Paces:
        """Return the paces of a plan's operators that its first answers show."""
        paces = ObservedPaces()
        run_s = profile.seconds.mean(axis=0) * self.deployment.slowdown[:, placement]
        stages = {
            task: StageSeconds(
                owner="", variant=variant_of(self._sessions.setting(task, configuration)),
                tier=tier, batched=False, whole_s=float(each_s), most_s=float(each_s),
            )
            for (task, tier), each_s in zip(
                self._space.placed(placement).items(), run_s, strict=True
            )
        }  # fmt: skip
        for answer in answers:
            for hop in {hop.task: hop for path in answer.paths for hop in path}.values():
                stage = stages[hop.task]
                paces.add(stage, stage.ran(1, 1, hop.finished_s - hop.started_s), 0.0)
        return paces.of("", 0.0)


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


def measured(system: LiveEnvironment, count: int, queries: int, seed: int) -> list[Row]:
    """Measure every plan. Raises ``NoAnswer`` and what opening a session raises."""
    file, space = system.file, search_space(system.file)
    composer = Composer(file, space)
    rows = []
    inputs = islice(load_workload(file).queries(np.random.default_rng(seed)), queries)
    samples = [Sample(number, payload, truth) for number, (payload, truth) in enumerate(inputs)]
    waiting = OpenQueries(answer_reader(file.pipeline))
    with closing(Exchange(system.kafka, file.pipeline, waiting)) as exchange:
        for number, (c, p) in enumerate(drawn(space, composer.deployment, count, seed)):
            session, plan = f"plan-{number}", json.dumps(as_plan(space, c, p))
            unpaused = composer.profile(c, samples, 0.0)
            profile = composer.profile(c, samples, PAUSE_S)
            asked = {"session": session, "plan": plan, "slo": "5s"}
            opened = give(file, system.kafka, OPEN, asked)
            if not opened.ok:
                raise RuntimeError(f"{session} was refused: {opened.message}")
            serving(file, system.kafka, session, SERVES_WITHIN_S)
            answers = answered(exchange, waiting, session, samples)
            give(file, system.kafka, CLOSE, {"session": session})
            served = [each for each in answers[:OBSERVED] if each.outcome == ANSWERED]
            paces = composer.observed(c, p, profile, served)
            plan_row = row(
                named(space, c, p),
                composer.latencies(c, p, profile, {}),
                composer.latencies(c, p, profile, paces),
                lived(answers[OBSERVED:]),
                composer.latencies(c, p, unpaused, {}),
                paces,
            )
            rows.append(plan_row)
            print(text(rows[-1]), flush=True)
    return rows


def answered(
    exchange: Exchange, waiting: OpenQueries, session: str, samples: Sequence[Sample]
) -> list[Answer]:
    """Return the answers to ``OBSERVED`` queries and to the samples, failed ones too, each sent
    after the previous answer; ``WARM_UP`` queries before them are left out."""
    found = []
    first = islice(cycle(samples), WARM_UP + OBSERVED)
    for turn, sample in enumerate((*first, *samples)):
        query = Query(payload=sample.payload, id=f"{session}-{turn}", session=session)
        future = waiting.add(query.id, time.time(), ANSWERED_WITHIN_S)
        exchange.send(query)
        answer = future.result()
        if turn >= WARM_UP:
            found.append(answer)
    return found


def lived(answers: Sequence[Answer]) -> Latencies:
    """Return the latencies of queries, of which those that were not answered count as the longest:
    ``ANSWERED_WITHIN_S``. They have no part of the operators."""
    served = [each for each in answers if each.outcome == ANSWERED]
    missed = [1e3 * ANSWERED_WITHIN_S] * (len(answers) - len(served))
    return Latencies([*map(latency_ms, served), *missed], [run_ms(each) for each in served])


def run_ms(answer: Answer) -> float:
    """Return the milliseconds of the operators on the longest path of an answer."""
    return 1e3 * max(sum(hop.finished_s - hop.started_s for hop in path) for path in answer.paths)


def row(
    plan: str, composed: Latencies, corrected: Latencies, live: Latencies, unpaused: Latencies,
    paces: Paces,
) -> Row:  # fmt: skip
    """Return the row of a plan."""
    return Row(
        plan=plan,
        queries=len(live.total),
        composed_mean_ms=float(np.mean(composed.total)),
        live_mean_ms=float(np.mean(live.total)),
        composed_p95_ms=float(np.quantile(composed.total, 0.95)),
        live_p95_ms=float(np.quantile(live.total, 0.95)),
        corrected_p95_ms=float(np.quantile(corrected.total, 0.95)),
        unpaused_p95_ms=float(np.quantile(unpaused.total, 0.95)),
        composed_run_ms=float(np.mean(composed.run)),
        live_run_ms=float(np.mean(live.run)),
        corrected_run_ms=float(np.mean(corrected.run)),
        unpaused_run_ms=float(np.mean(unpaused.run)),
        composed_run_p95_ms=float(np.quantile(composed.run, 0.95)),
        live_run_p95_ms=float(np.quantile(live.run, 0.95)),
        corrected_run_p95_ms=float(np.quantile(corrected.run, 0.95)),
        paces={f"{v} on {tier}": pace for (v, tier), pace in paces.items() if v != OTHERS},
    )


def named(space: SessionSpace, configuration: int, placement: int) -> str:
    """Return a plan as text: setting on tier, for every task."""
    tiers = space.space.placed(placement).items()
    return ", ".join(f"{space.setting(task, configuration)} on {tier}" for task, tier in tiers)


def text(one: Row) -> str:
    """Return a row as a line."""
    return (
        f"mean {one.composed_mean_ms:6.1f} composed, {one.live_mean_ms:6.1f} live (operators "
        f"{one.composed_run_ms:.1f}, {one.live_run_ms:.1f}; {one.corrected_run_ms:.1f} corrected, "
        f"{one.unpaused_run_ms:.1f} unpaused; "
        f"p95 {one.composed_run_p95_ms:.1f}, {one.live_run_p95_ms:.1f}); "
        f"p95 {one.composed_p95_ms:6.1f} composed, {one.corrected_p95_ms:6.1f} corrected, "
        f"{one.live_p95_ms:6.1f} live ({100 * one.error:+5.1f} %; "
        f"{100 * one.profile_error:+5.1f} % of the profile; "
        f"{100 * one.unpaused_error:+5.1f} % unpaused; "
        f"{100 * one.rule_error:+5.1f} % of live operators) ms; {one.plan}"
    )


def misses(rows: Sequence[Row]) -> list[str]:
    """Return a line for each plan whose p95 differs by too much, the worst first: how much, and how
    much the p95 of its operators alone differs; the rest is in hops and links."""
    late = sorted(rows, key=lambda one: -abs(one.error))
    return [
        f"{100 * one.error:+.1f} %, {one.live_p95_ms - one.corrected_p95_ms:+.1f} ms, of which "
        f"operators {one.live_run_p95_ms - one.corrected_run_p95_ms:+.1f} ms: {one.plan}"
        for one in late
        if abs(one.error) > WITHIN
    ]


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
        with live_environment(file, file.pipeline.policy, 1.0) as system:
            rows = measured(system, options.plans, options.queries, options.seed)
    if options.json:
        found = {"machine": machine(), "rows": [asdict(one) for one in rows]}
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    met = sum(abs(one.error) <= WITHIN for one in rows)
    by_profile = sum(abs(one.profile_error) <= WITHIN for one in rows)
    unpaused = sum(abs(one.unpaused_error) <= WITHIN for one in rows)
    by_rule = sum(abs(one.rule_error) <= WITHIN for one in rows)
    worst = max(rows, key=lambda one: abs(one.error))
    print(
        f"p95 within {100 * WITHIN:g} % for {met} of {len(rows)} plans; the worst "
        f"{100 * worst.error:+.1f} %; {by_profile} composed of the profile alone, {unpaused} "
        f"without pauses, {by_rule} of the seconds that operators took live"
    )
    print("\n".join(misses(rows)))
    return int(met < len(rows))


if __name__ == "__main__":
    sys.exit(main())
