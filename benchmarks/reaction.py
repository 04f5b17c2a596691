"""Measure how soon queries run under a plan for a demand that has just doubled.

    python -m benchmarks.reaction [--virtual] [--steps N] [--rate QPS] [--dilate X] [--seed N]
        [--policies quick exact] [--json]

Twenty emulated devices serve two tasks, each with an accurate and a fast variant. Every
``CALM_S`` seconds the demand (Poisson) doubles at once, for ``HIGH_S`` seconds. The policies are
``quick`` (``loki``) and ``exact``, the same without quick plans; live, on a local broker of its
own, they take turns step by step. With ``--virtual`` each plays the same arrivals in virtual time,
where a solve takes 0.2 s whatever else the machine does.

For each policy, over its steps: seconds from the step until the plan for it (made for at least
``ENOUGH`` times the calm demand) was issued, until the first query that runs under it was created,
and until the slots in use carry the doubled demand; and the share of the queries of the
``WATCHED_S`` seconds after a step without a complete answer in time. Steps whose present plan
already carries them are left out, and counted. Times are the pipeline's (dilated) ones. Exit code 1
if the median to the first query, with quick plans, is above ``MUST_S``.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.small_cluster import a_cluster
from headrace.arrivals.arrival_processes import Recorded, Times
from headrace.client.topic_clients import Commander
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.fidelity.live_run import LiveEnvironment, answers, live_environment, play
from headrace.machine import machine
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import simulated
from operators.outcomes import outcome_of
from schemas.effects import PLANS, RESULTS, Effect, Event, Send
from schemas.records import ANSWERED, Answer, Plan

DEVICES, INTERVAL_S = 20, 4.0
CALM_S, HIGH_S, WATCHED_S = 10.0, 4.0, 3.0
SETTLE_S = 6.0  # before the first calm
ENOUGH = 1.5
MUST_S, AIM_S = 1.0, 0.4
POLICIES = ("quick", "exact")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step: its policy, start, calm demand, and seconds from its start (None: never)."""

    policy: str
    at_s: float
    planned_s: float | None
    query_s: float | None
    carried_s: float | None
    queries: int
    missed: int


@dataclass(slots=True)
class Seen:
    """An observer that keeps plans and answers."""

    plans: list[Plan] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        """Keep the plans and answers among the effects."""
        for effect in effects:
            if type(effect) is Send and effect.topic == PLANS and type(effect.record) is Plan:
                self.plans.append(effect.record)
            if type(effect) is Send and effect.topic == RESULTS and type(effect.record) is Answer:
                self.answers.append(effect.record)


def pipeline(folder: Path, policy: str) -> PipelineFile:
    """Write and return the pipeline; ``policy`` is the one in force at the start."""
    policies = {
        "quick": {"kind": "loki", "interval": f"{INTERVAL_S:g}s"},
        "exact": {"kind": "loki", "interval": f"{INTERVAL_S:g}s", "quick": False},
    }
    path = a_cluster(
        folder, fan_out=1, batch_s=0.02, devices=DEVICES, policies=policies, policy=policy
    )
    return read_pipeline_file(path)


def starts(steps: int) -> list[float]:
    """Return the start of each step, in seconds from the first arrival."""
    return [SETTLE_S + CALM_S + at * (CALM_S + HIGH_S) for at in range(steps)]


def arrivals(steps: int, rate_qps: float, rng: np.random.Generator) -> Times:
    """Return Poisson arrivals whose rate doubles at each step."""
    ends_s = starts(steps)[-1] + HIGH_S + 1.0
    drawn = np.cumsum(rng.exponential(1 / (2 * rate_qps), int(3 * rate_qps * ends_s)))
    drawn = drawn[drawn < ends_s]
    high = np.zeros(len(drawn), dtype=bool)
    for start_s in starts(steps):
        high |= (drawn >= start_s) & (drawn < start_s + HIGH_S)
    kept: Times = drawn[high | (rng.random(len(drawn)) < 0.5)]
    return kept


def judged(seen: Seen, policy: str, at_s: float, rate_qps: float) -> Step | None:
    """Return the figures of the step at ``at_s``; None if the plan before carries it."""
    before = [plan for plan in seen.plans if plan.issued_s < at_s]
    if before and (before[-1].capacity_qps or 0.0) >= 2 * rate_qps:
        return None
    after = [p for p in seen.plans if at_s <= p.issued_s < at_s + HIGH_S]
    made = next((p for p in after if p.demand_qps >= ENOUGH * rate_qps), None)
    full = next((p for p in after if (p.capacity_qps or 0.0) >= 2 * rate_qps), None)
    under = [
        each.created_s
        for each in seen.answers
        if made is not None and each.epoch >= made.epoch and each.created_s >= made.issued_s
    ]
    watched = [each for each in seen.answers if at_s <= each.created_s < at_s + WATCHED_S]
    missed = [each for each in watched if outcome_of(each) != ANSWERED]
    return Step(
        policy=policy,
        at_s=at_s,
        planned_s=None if made is None else round(made.issued_s - at_s, 3),
        query_s=round(min(under) - at_s, 3) if under else None,
        carried_s=None if full is None else round(full.issued_s - at_s, 3),
        queries=len(watched),
        missed=len(missed),
    )


def virtual(policy: str, times: Times, steps: int, rate_qps: float, seed: int) -> list[Step | None]:
    """Play the steps under one policy in virtual time."""
    with tempfile.TemporaryDirectory(prefix="headrace-reaction-") as folder:
        file, seen = pipeline(Path(folder), policy), Seen()
        run = Run(file=file, policy=policy, seed=seed, arrivals=Recorded(times))
        ended = simulated(run, lambda sent: None, (seen,))
    return [judged(seen, policy, ended.first_s + at_s, rate_qps) for at_s in starts(steps)]


def live(
    policies: Sequence[str], times: Times, steps: int, rate_qps: float, dilate: float
) -> list[Step | None]:
    """Play the steps live; the policies take turns, changed at the start of each calm."""
    turns = [policies[at % len(policies)] for at in range(steps)]
    begins_s = [0.0, *(start_s + HIGH_S for start_s in starts(steps)[:-1])]
    with tempfile.TemporaryDirectory(prefix="headrace-reaction-") as folder:
        file = pipeline(Path(folder), turns[0])
        with live_environment(file, turns[0], dilate) as system:
            with closing(Commander(system.kafka, file.pipeline.name)) as commander:
                _play(system, commander, times, list(zip(begins_s, turns, strict=True)))
            seen = Seen(sorted(system.plans, key=lambda plan: plan.epoch), list(answers(system)))
            return [
                judged(seen, policy, system.began_s + at_s, rate_qps)
                for at_s, policy in zip(starts(steps), turns, strict=True)
            ]


def _play(
    system: LiveEnvironment, commander: Commander, times: Times, turns: list[tuple[float, str]]
) -> None:
    now = [turns[0][1]]

    def each(at: LiveEnvironment, sent: int) -> None:
        due = [policy for begins_s, policy in turns if at.now_s - at.began_s >= begins_s]
        if due and due[-1] != now[0]:
            now[0] = due[-1]
            commander.apply_policy(due[-1])

    play(system, Recorded(times), each)


def summary(steps: Sequence[Step | None], policy: str) -> dict[str, float | int | None]:
    """Return the figures of a policy's steps; times in seconds."""
    own = [step for step in steps if step is not None and step.policy == policy]
    found: dict[str, float | int | None] = {"steps": len(own)}
    for name in ("planned_s", "query_s", "carried_s"):
        took = [getattr(step, name) for step in own]
        known = sorted(HIGH_S if each is None else each for each in took)
        found[f"{name}_p50"] = round(float(np.median(known)), 3) if known else None
        found[f"{name}_p90"] = round(float(np.quantile(known, 0.9)), 3) if known else None
        found[f"{name}_never"] = took.count(None)
    queries = sum(step.queries for step in own)
    found["violation"] = round(sum(s.missed for s in own) / queries, 4) if queries else None
    return found


def main() -> int:
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(description="Reaction to a demand that doubles.")
    parser.add_argument("--virtual", action="store_true")
    parser.add_argument("--steps", type=int, default=20, help="of all policies together, if live")
    parser.add_argument("--rate", type=float, default=150.0, help="calm queries/s")
    parser.add_argument("--dilate", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    times = arrivals(asked.steps, asked.rate, np.random.default_rng(asked.seed))
    if asked.virtual:
        runs = [virtual(p, times, asked.steps, asked.rate, asked.seed) for p in asked.policies]
        found = [step for steps in runs for step in steps]
    else:
        found = live(asked.policies, times, asked.steps, asked.rate, asked.dilate)
    figures = {policy: summary(found, policy) for policy in asked.policies}
    if asked.json:
        rows = [asdict(step) for step in found if step is not None]
        print(json.dumps({"machine": machine(), "policies": figures, "steps": rows}))
    else:
        _print(figures, found)
    middle = figures[asked.policies[0]]["query_s_p50"]
    return 0 if middle is not None and middle <= MUST_S else 1


def _print(figures: dict[str, dict[str, float | int | None]], found: Sequence[Step | None]) -> None:
    print("policy  steps  plan p50  p90  first query p50  p90  carried p50  p90  violation")
    for policy, each in figures.items():
        print(
            f"{policy:6} {each['steps']:6}  {each['planned_s_p50']} s  {each['planned_s_p90']} s  "
            f"{each['query_s_p50']} s  {each['query_s_p90']} s  {each['carried_s_p50']} s  "
            f"{each['carried_s_p90']} s  {each['violation']:.2%}"
        )
    print(
        f"{found.count(None)} steps found a plan that carries them; {machine()}; load average "
        f"{os.getloadavg()[0]:.1f}; wanted {MUST_S:g} s, aim {AIM_S:g} s"
    )


if __name__ == "__main__":
    sys.exit(main())
