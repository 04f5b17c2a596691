"""Measure, live, how soon inputs that fade are noticed, and what the plan for them gains.

    python -m benchmarks.drift [--rate 72] [--seconds 120] [--json]

The postcode pipeline with real models: two locators (``components``, ``net``) and one reader on
three CPU workers, at a rate at which ``loki`` needs both locators. Half-way the envelopes fade:
40 % of the contrast, brighter paper, noise of 10 grey levels. Every answer is labelled a second
later, a tenth of the queries has a shadow. Two runs with the same queries: plans by the profile,
and by what is measured. Accuracy is the share of right digits, of complete answers in time; beside
it stands the share of the queries that had such an answer, since a plan may read more digits right
because it answers fewer queries.
"""

import argparse
import io
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image

from benchmarks.machine_speed import machine
from benchmarks.rig import Rig
from control.estimation.accuracy.accuracy_drift import drift_text, drifted_paths
from headrace.broker.local_broker import borrow
from headrace.client.accuracy_topic import newest_accuracy
from operators.outcomes import outcome_of
from schemas.effects import LABELS
from schemas.enumerations import PlanCause
from schemas.records import ANSWERED, Answer
from streams.kafka.kafka_client import producer
from streams.topics import physical

EXAMPLE = Path(__file__).parents[1] / "examples" / "postcode"
VARIANTS = {"locate": ("components", "net"), "read": ("cnn",)}
SHARED = ("postcode", "weights", "profile-cpu.json")
JUDGE = "from postcode.workload import Postcodes\n\njudge = Postcodes().score\n"
LABEL_S = 1.0  # from an answer to its label
LOOK_S = 0.5  # between two looks at the scorer's records
ENVELOPES = 3000  # different ones: repeated ones would narrow intervals without new information
CONTRAST, PAPER, NOISE = 0.4, 150.0, 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One run. Seconds are from the moment at which inputs began to fade; accuracies 0 to 1.

    ``_in_time``: the share of the queries of that time with a complete answer in time.
    """

    plan_by: str
    answered: int  # with any outcome
    clean: float  # accuracy before
    faded: float  # from then to the first plan for it, or to the end
    planned: float | None  # after the first such plan has been in force for five seconds
    clean_in_time: float
    faded_in_time: float
    planned_in_time: float | None
    reported_s: float | None
    planned_s: float | None
    report: str
    first_variants: tuple[str, ...]
    last_variants: tuple[str, ...]


def envelopes(seed: int) -> tuple[list[tuple[bytes, str]], list[tuple[bytes, str]]]:
    """Return envelopes with their truths, clean and faded."""
    sys.path.insert(0, str(EXAMPLE))
    from postcode.workload import Postcodes

    rng = np.random.default_rng(seed)
    queries = Postcodes().queries(rng)
    clean = [next(queries) for _ in range(ENVELOPES)]
    return clean, [(_faded(png, rng), truth) for png, truth in clean]


def _faded(png: bytes, rng: np.random.Generator) -> bytes:
    image = np.asarray(Image.open(io.BytesIO(png)), dtype=np.float32)
    faded = image * CONTRAST + PAPER + rng.normal(0.0, NOISE, image.shape)
    out = io.BytesIO()
    Image.fromarray(np.clip(faded, 0, 255).astype(np.uint8)).save(out, format="PNG")
    return out.getvalue()


def description(plan_by: str) -> dict[str, Any]:
    """Return the pipeline file of the example, with fewer variants and with labels."""
    file = yaml.safe_load((EXAMPLE / "pipeline.yaml").read_text())
    for task, names in VARIANTS.items():
        variants = file["tasks"][task]["variants"]
        file["tasks"][task]["variants"] = {name: variants[name] for name in names}
    loki = {"kind": "loki", "interval": "5s", "headroom": 1.2}
    cluster = {"devices": {"cpu": 3}, "share": 0.035, "ingress": 1, "egress": 1}
    labels = {"scorer": "judged_postcodes:judge", "shadow": {"share": 0.1}, "plan_by": plan_by}
    kept = {key: file[key] for key in ("slo", "input", "combine", "incomplete", "tasks")}
    return {
        **kept, "results": "avro", "policy": "loki", "policies": {"loki": loki},
        "cluster": cluster, "profiles": ["profile-cpu.json"], "labels": labels,
    }  # fmt: skip


class _Run:
    """A load under way: its truths, labels and what was reported."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._sender = producer(rig.kafka)
        self._truths: dict[str, str] = {}
        self._labelled = 0
        self._look_s = 0.0
        self.reported: tuple[float, str] | None = None

    def play(self, queries: Iterator[tuple[bytes, str]], rate: float, until_s: float) -> None:
        """Send queries at a rate until a time, labels after their answers."""
        due_s = time.time()
        while time.time() < until_s:
            while due_s <= time.time():
                due_s += 1 / rate
                payload, truth = next(queries)
                self._truths[self._rig.ask(payload)] = truth
            self._rig.step()
            self._label()
            if time.time() >= self._look_s:
                self._look_s = time.time() + LOOK_S
                self._look()

    def _label(self) -> None:
        answers = self._rig.answers
        while self._labelled < len(answers):
            answer = answers[self._labelled]
            if answer.answered_s > time.time() - LABEL_S:
                return
            self._labelled += 1
            label = {"id": answer.id, "truth": self._truths[answer.id]}
            self._sender.produce(physical(self._rig.name, LABELS), json.dumps(label).encode())
        self._sender.poll(0)

    def _look(self) -> None:
        newest = newest_accuracy(self._rig.kafka, self._rig.name)
        found = drifted_paths(newest.recent) if newest is not None else ()
        if found and self.reported is None:
            self.reported = (time.time(), "; ".join(map(drift_text, found)))

    def score(self, from_s: float, until_s: float) -> tuple[float, float]:
        """Return accuracy and share in time of the queries created within a time."""
        within = [each for each in self._rig.answers if from_s <= each.created_s < until_s]
        return scored(within, self._truths)


def scored(answers: Sequence[Answer], truths: Mapping[str, str]) -> tuple[float, float]:
    """Return the share of right digits of complete answers in time, and the share of the queries
    that have one; NaN of nothing. ``truths`` are by query id."""
    good = [each for each in answers if outcome_of(each) == ANSWERED]
    right = sum(_right(each, truths[each.id]) for each in good)
    of = sum(len(truths[each.id]) for each in good)
    in_time = len(good) / len(answers) if answers else float("nan")
    return right / of if of else float("nan"), in_time


def _right(answer: Answer, truth: str) -> int:
    return sum(a == b for a, b in zip(str(answer.result), truth, strict=False))


def measured(bootstrap: str, folder: Path, plan_by: str, rate: float, seconds: float) -> Seen:
    """Run the pipeline once and return what was seen."""
    for name in SHARED:
        (folder / name).symlink_to(EXAMPLE / name)
    (folder / "judged_postcodes.py").write_text(JUDGE)
    clean, faded = envelopes(seed=11)
    with closing(Rig(bootstrap, folder, description(plan_by))) as rig:
        rig.up()
        run = _Run(rig)
        began_s = time.time()
        half_s = began_s + seconds / 2
        run.play(_again(clean), rate, half_s)
        first = rig.plan
        run.play(_again(faded), rate, began_s + seconds)
        rig.pass_time(2.0)
        anew = [p for p in rig.plans if PlanCause.ACCURACY in p.causes and p.issued_s >= half_s]
        planned_s = min((plan.issued_s for plan in anew), default=None)
        end_s = began_s + seconds
        before = run.score(began_s + 10.0, half_s)
        after = run.score(half_s, end_s if planned_s is None else planned_s)
        planned: tuple[float | None, float | None] = (
            (None, None) if planned_s is None else run.score(planned_s + 5.0, end_s)
        )
        return Seen(
            plan_by=plan_by, answered=len(rig.answers),
            clean=before[0], faded=after[0], planned=planned[0],
            clean_in_time=before[1], faded_in_time=after[1], planned_in_time=planned[1],
            reported_s=run.reported[0] - half_s if run.reported else None,
            planned_s=planned_s - half_s if planned_s else None,
            report=run.reported[1] if run.reported else "",
            first_variants=_variants(first), last_variants=_variants(rig.plan),
        )  # fmt: skip


def _again(queries: Sequence[tuple[bytes, str]]) -> Iterator[tuple[bytes, str]]:
    while True:
        yield from queries


def _variants(plan: Any) -> tuple[str, ...]:
    return tuple(sorted(lease.key for lease in plan.leases if lease.open_slot >= 0))


def main() -> int:
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=72.0, help="queries/s")
    parser.add_argument("--seconds", type=float, default=120.0, help="of each run")
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    asked = parser.parse_args()
    rows = []
    with borrow() as running:
        for plan_by in ("profile", "measured"):
            with tempfile.TemporaryDirectory() as folder:
                rows.append(
                    measured(running.bootstrap, Path(folder), plan_by, asked.rate, asked.seconds)
                )
    if asked.json:
        print(json.dumps({"machine": machine(), "runs": [asdict(row) for row in rows]}))
        return 0
    for row in rows:
        print(json.dumps(asdict(row), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
