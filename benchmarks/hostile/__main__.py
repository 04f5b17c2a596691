"""Run hostile producers beside an honest one, and check that it is served and no role ends.

    python -m benchmarks.hostile [--records 1000000] [--flood 3000] [--letters 1000] [--seconds 20]
                                 [--rate 20] [--fuzz-rate 2000] [--inputs raw,avro,confluent]
                                 [--attacks quiet,fuzz,flood,letters,ids] [--seed 1] [--json]

On a broker and a pipeline of its own, one attack after the other, each from a process that has
only Write on the input topic: fuzzed records, a flood of valid queries, and unreadable records of a
megabyte each, which become dead letters; with a schema registry also records whose schema it does
not have. An honest producer goes on beside them. For each attack
it prints the share of its queries that were answered in time, those that were answered at all, and
the largest memory of a role. Exit code 1: a role ended, or an honest query has not exactly one
answer.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.machine_speed import machine
from benchmarks.received_answers import in_time
from benchmarks.rig import Rig
from benchmarks.schema_registry import a_registry
from benchmarks.squares import PIPELINE
from headrace.broker import local_broker as local
from headrace.processes import end_session

ROOT = Path(__file__).parents[2]
QUIET, IDS = "quiet", "ids"
FRAMED = "confluent"  # the input format with a schema registry
WITHIN_S = 900.0  # the answers have come by then
SLOWEST = 100.0  # records a second that an attack writes at least


@dataclass(frozen=True, slots=True, kw_only=True)
class Attacked:
    """The result of an attack: the honest producer's queries during it."""

    attack: str
    input: str
    seconds: float
    written: int  # records of the attacker
    answered_to_others: int
    letters: int
    honest: int
    honest_in_time: float  # share
    honest_answered: float  # share with any answer
    doubled: int
    memory_mb: float  # the largest resident memory of a role


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """The load of a hostile producer: ``count`` records of a kind, ``rate`` a second."""

    kind: str
    count: int
    rate: float
    seed: int = 1


def measure(rig: Rig, attack: Attack | None, seconds: float, rate: float) -> Attacked:
    """Attack a running pipeline while the honest producer writes ``rate`` queries a second."""
    mine, others, letters = len(rig.asked), len(rig.answers), len(rig.letters)
    rig.offer(rate)
    if attack is None:
        took_s = rig.until(_Passed(seconds), "the quiet time", seconds + 10.0)
    else:
        took_s = _suffer(rig, attack)
    rig.offer(0)
    rig.until(lambda: not rig.waiting, "an answer to every honest query", WITHIN_S)
    names = list(rig.asked)[mine:]
    wanted = {rig.asked[name].origin for name in names}
    found = [a for a in rig.answers[others:] if a.id in rig.asked and a.origin in wanted]
    return Attacked(
        attack=QUIET if attack is None else attack.kind,
        input=rig.file.pipeline.input,
        seconds=round(took_s, 1),
        written=0 if attack is None else attack.count,
        answered_to_others=len(rig.answers) - others - len(found),
        letters=len(rig.letters) - letters,
        honest=len(names),
        honest_in_time=round(sum(map(in_time, found)) / max(1, len(names)), 4),
        honest_answered=round(len({a.origin for a in found}) / max(1, len(names)), 4),
        doubled=len(found) - len({a.origin for a in found}),
        memory_mb=round(max(map(_resident, rig.leaders)) / 1e6, 1),
    )


class _Passed:
    """A condition that holds after ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self._until_s = time.monotonic() + seconds

    def __call__(self) -> bool:
        return bool(time.monotonic() >= self._until_s)


def _suffer(rig: Rig, attack: Attack) -> float:
    """Write the attack's records from another process; return the seconds that it took."""
    figures = [str(attack.count), str(attack.rate), str(attack.seed)]
    line = [sys.executable, "-m", "benchmarks.hostile.attack", attack.kind]
    line += [str(rig.file.path), rig.bootstrap]
    process = subprocess.Popen(
        [*line, *figures], cwd=ROOT, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        within_s = WITHIN_S + attack.count / SLOWEST
        return rig.until(lambda: process.poll() is not None, "the attack to end", within_s)
    finally:
        end_session(process.pid)
        process.wait()


def _resident(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def attacked(folder: Path, kind: str, attacks: Sequence[Attack | None], seconds: float,
             rate: float) -> list[Attacked]:  # fmt: skip
    """Run a pipeline with an input format and suffer attacks, in order. Raises ``Stuck``."""
    home = folder / f"broker-{kind}"
    with ThreadPoolExecutor(1) as beside, a_registry() as registry:
        running = local.start(home)
        try:
            more = {"schema_registry": registry} if kind == FRAMED else {}
            rig = Rig(running.bootstrap, folder, {**PIPELINE, "input": kind, **more})
            try:
                rig.up()
                return [measure(rig, attack, seconds, rate) for attack in attacks]
            finally:
                rig.close()
        finally:
            beside.submit(local.stop, home).result()


def report(rows: Sequence[Attacked]) -> str:
    """Return the figures as a table."""
    heads = ("attack", "input", "written", "letters", "honest", "in time", "answered", "MB")
    lines = ["{:<10} {:<9} {:>9} {:>8} {:>7} {:>8} {:>9} {:>7}".format(*heads)]
    lines += [
        f"{r.attack:<10} {r.input:<9} {r.written:>9} {r.letters:>8} {r.honest:>7} "
        f"{r.honest_in_time:>8.1%} {r.honest_answered:>9.1%} {r.memory_mb:>7.0f}"
        for r in rows
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Attack and print; return 1 if an honest query has not exactly one answer."""
    parser = argparse.ArgumentParser(description="Hostile producers beside an honest one.")
    parser.add_argument("--records", type=int, default=1_000_000, help="fuzzed, in all")
    parser.add_argument("--fuzz-rate", type=float, default=2000.0, help="fuzzed records a second")
    parser.add_argument("--flood", type=float, default=3000.0, help="valid queries a second")
    parser.add_argument("--letters", type=int, default=1000, help="unreadable megabytes")
    parser.add_argument("--seconds", type=float, default=20.0, help="of quiet, and of the flood")
    parser.add_argument("--rate", type=float, default=20.0, help="honest queries a second")
    parser.add_argument("--inputs", default=f"raw,avro,{FRAMED}", help="formats")
    parser.add_argument("--attacks", default=f"{QUIET},fuzz,flood,letters,{IDS}")
    parser.add_argument("--seed", type=int, default=1, help="of the fuzzed records: a run in parts")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    asked = parser.parse_args(arguments)
    formats = asked.inputs.split(",")
    known: dict[str, Attack | None] = {
        QUIET: None,
        "fuzz": Attack(
            kind="fuzz", count=asked.records // len(formats), rate=asked.fuzz_rate, seed=asked.seed
        ),
        "flood": Attack(kind="flood", count=int(asked.flood * asked.seconds), rate=asked.flood),
        "letters": Attack(kind="letters", count=asked.letters // len(formats), rate=50.0),
        IDS: Attack(kind=IDS, count=int(asked.flood * asked.seconds), rate=asked.flood),
    }
    names = asked.attacks.split(",")
    with tempfile.TemporaryDirectory(prefix="headrace-hostile-") as folder:
        rows = [
            row
            for kind in formats
            for row in attacked(
                Path(folder),
                kind,
                [known[name] for name in names if name != IDS or kind == FRAMED],
                asked.seconds,
                asked.rate,
            )
        ]
    print(json.dumps(as_json(rows)) if asked.json else report(rows))
    return int(any(row.honest_answered < 1.0 or row.doubled for row in rows))


def as_json(rows: Sequence[Attacked]) -> dict[str, Any]:
    """Return the rows with the machine."""
    return {"attacks": [asdict(row) for row in rows], "machine": machine()}


if __name__ == "__main__":
    sys.exit(main())
