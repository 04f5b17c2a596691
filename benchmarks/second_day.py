"""Try what users meet after the first day: a pipeline that fails, stops, forgets and restarts.

    nice -n 10 python -m benchmarks.second_day [--json]

Runs the command `headrace` with a local broker in its own folder, on a pipeline whose module has
the name of one of Headrace's packages. Prints a line for each trial with the result found. The exit
code is 1 if a trial fails. Takes about two minutes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.small_cluster import a_cluster
from headrace.processes import environment

ROOT = Path(__file__).parents[1]
BRANCHES = 6_000
MOST_ANSWER_BYTES = 200_000
QUERIES = 20  # the first query is compared with their median latency
WITHIN_S = 180.0

OPERATORS = f"""
import time

class Split:
    def load(self, device): pass
    def predict(self, batch): return [self.one(value.decode()) for value in batch]
    def one(self, text):
        if text == "exit":
            raise SystemExit(4)
        return ["x"] * {BRANCHES} if text == "many" else text.split()

class Shout:
    def load(self, device): time.sleep(0.3)
    def predict(self, batch): return [value.upper() for value in batch]
"""
FILE = """
name: second-day
slo: 2s
grace: 1s
results: json
tasks:
  split: {variants: {v: {operator: 'operators:Split'}}, children: [shout]}
  shout: {variants: {v: {operator: 'operators:Shout', batch: 64}}}
policies:
  other: {kind: static, batch: {shout/v: 32}}
cluster: {devices: {cpu: 2}}
"""


@dataclass(frozen=True, slots=True)
class Trial:
    """One user action with the wanted and the found result."""

    name: str
    wanted: str
    found: str
    holds: bool


@dataclass(frozen=True, slots=True)
class User:
    """Runs commands in a folder, with its own HEADRACE_HOME."""

    folder: Path

    @property
    def file(self) -> str:
        return str(self.folder / "pipeline.yaml")

    def types(self, *words: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        """Run a command; return the finished process with its output."""
        env = {**environment(os.environ, None), "HEADRACE_HOME": str(self.folder / "home")}
        return subprocess.run(
            [sys.executable, "-m", "headrace", *words],
            input=stdin, capture_output=True, check=False, env=env, cwd=self.folder,
            timeout=WITHIN_S,
        )  # fmt: skip

    def sends(self, payload: bytes) -> Mapping[str, Any]:
        """Send a query; return its answer, or {} without one."""
        done = self.types("send", self.file, "-", "--json", stdin=payload)
        return json.loads(done.stdout) if done.stdout else {}

    def up(self) -> Mapping[str, Any]:
        """Start the pipeline; return the output of `up --detach`."""
        done = self.types("up", self.file, "--detach", "--json")
        if not done.stdout:
            raise RuntimeError(done.stderr.decode())
        return json.loads(done.stdout)  # type: ignore[no-any-return]

    def down(self, *words: str) -> str:
        """Stop the pipeline; return the error message, or ""."""
        done = self.types("down", self.file, *words)
        return done.stderr.decode().strip() if done.returncode else ""


def refused(user: User, name: str, wanted: str, *words: str, code: int = 2) -> Trial:
    """Try a command that must fail with a message that contains ``wanted``."""
    began = time.monotonic()
    done = user.types(*words)
    said = done.stderr.decode().strip()
    holds = done.returncode == code and wanted in said and "Traceback" not in said
    found = f"{said.splitlines()[-1] if said else ''} ({time.monotonic() - began:.1f} s)"
    return Trial(name, f"exit {code}: ... {wanted} ...", f"exit {done.returncode}: {found}", holds)


def offline(user: User) -> Iterator[Trial]:
    """Yield the trials that need no broker."""
    done = user.types("validate", user.file)
    said = (done.stdout or done.stderr).decode().strip()
    yield Trial("a module called operators.py", "valid", said.splitlines()[0], not done.returncode)
    yield refused(user, "a misspelt command", "did you mean 'status'", "stauts")
    profile = ("profile", str(ROOT / "examples/postcode/pipeline.yaml"), "--device")
    yield refused(user, "profile on a device that is none", "'banana' is none", *profile, "banana")
    out = ("--out", "/nodir/x.json")
    yield refused(user, "profile into no folder", "does not exist", *profile, "cpu", *out)
    cluster = str(a_cluster(user.folder / "cluster", devices=4))
    epoch = user.folder / "epoch.txt"
    epoch.write_text("\n".join(str(1_763_800_000_000 + 20 * at) for at in range(200)))
    done = user.types("simulate", cluster, "--arrivals", str(epoch), "--json")
    played = json.loads(done.stdout)[0]["queries"] if done.stdout else 0
    yield Trial("arrivals as epoch ms", "200 queries", f"{played} queries", played == 200)
    seconds = user.folder / "seconds.txt"
    seconds.write_text("\n".join(f"{0.013 + at / 50:.3f}" for at in range(500)))
    line = ("simulate", cluster, "--arrivals", str(seconds))
    yield refused(user, "arrivals in seconds", "write the unit in a first line", *line)
    yield best_fixed(user, cluster)


def best_fixed(user: User, cluster: str) -> Trial:
    """Check that static-best is no worse than the fixed choices of the file."""
    policies = ("static-best", "static", "fast")
    line = ("--rate", "150", "--seconds", "5", "--policy", *policies, "--seed", "1", "--json")
    document = json.loads(user.types("compare", cluster, *line).stdout)
    yields = {row["policy"]: row["yield"]["mean"] for row in document["policies"]}
    found = ", ".join(f"{name} {100 * value:.1f} %" for name, value in yields.items())
    holds = yields["static-best"] >= max(yields.values())
    return Trial("static-best among fixed choices", "the highest yield", found, holds)


def online(user: User) -> Iterator[Trial]:
    """Yield the trials of a running pipeline."""
    began = time.monotonic()
    user.up()
    first = user.sends(b"well done")
    took = time.monotonic() - began
    right = first.get("result") == ["WELL", "DONE"]
    yield Trial("up to the first answer", "a right one", f"{right} after {took:.0f} s", right)
    dead = user.sends(b"exit")
    after = user.sends(b"again")
    said = f"{dead.get('outcome')}: {dead.get('reason')}; then {after.get('outcome')}"
    holds = "SystemExit: 4 (at operators.py:" in str(dead.get("reason"))
    holds = holds and dead["outcome"] == "failed" and after.get("outcome") == "answered"
    yield Trial("an operator that exits", "failed with its place, the next answered", said, holds)
    many = user.sends(b"many")
    size = len(json.dumps(many))
    whole = len(many.get("result") or ()) == BRANCHES
    yield Trial(f"an answer of {BRANCHES} branches", f"below {MOST_ANSWER_BYTES / 1e3:.0f} kB",
                f"{size / 1e3:.0f} kB, {many.get('outcome')}", whole and size < MOST_ANSWER_BYTES,
                )  # fmt: skip
    yield purged(user)
    user.down()


def purged(user: User) -> Trial:
    """Check that a purge clears policy and drains, and that plans begin at epoch 1."""
    user.types("policy", "apply", user.file, "other")
    user.types("drain", user.file, "cpu-0")
    failed = user.down("--purge")
    fresh = user.up()
    listed = user.types("policy", "history", user.file, "--json").stdout
    reasons = {row["epoch"]: row["reason"] for row in json.loads(listed or b"[]")}
    begins = min(reasons, default=0)
    return Trial(
        "down --purge and up", "plans from epoch 1, nothing by command",
        f"{failed} plans {begins} to {fresh['epoch']}, by command {fresh['by_command']}".strip(),
        begins == 1 and not fresh["by_command"],
    )  # fmt: skip


def restart(user: User) -> Iterator[Trial]:
    """Yield the trials of a command to a stopped pipeline and of the next start."""
    user.up()
    user.down()
    broker = user.types("broker", "start")
    given = user.types("drain", user.file, "cpu-0")
    time.sleep(1.0)
    again = user.up()
    yield Trial("a command while it is down", "told that it failed, not carried out later",
                f"exit {given.returncode}, then by command {again['by_command']}",
                given.returncode != 0 and not again["by_command"])  # fmt: skip
    first_ms = user.sends(b"first")["latency_ms"]
    others_ms = [user.sends(b"next")["latency_ms"] for _ in range(QUERIES)]
    usual_ms = median(others_ms)
    yield Trial("the first query after a start", "within twice the median",
                f"{first_ms:.0f} ms, median of {QUERIES} others {usual_ms:.0f} ms",
                first_ms <= 2 * usual_ms)  # fmt: skip
    logs = user.types("logs", user.file, "--last", "0")
    yield Trial("logs of all roles", "exit 0", f"exit {logs.returncode}", logs.returncode == 0)
    user.down()
    if broker.returncode == 0:
        user.types("broker", "stop")


PARTS: Mapping[str, Callable[[User], Iterator[Trial]]] = {
    "offline": offline,
    "online": online,
    "restart": restart,
}


def main() -> int:
    """Run the trials; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    parser.add_argument("--part", choices=PARTS, help="one part only")
    asked = parser.parse_args()
    found: list[Trial] = []
    with tempfile.TemporaryDirectory(prefix="headrace-second-day-") as folder:
        user = User(Path(folder))
        (user.folder / "cluster").mkdir()
        (user.folder / "operators.py").write_text(OPERATORS)
        (user.folder / "pipeline.yaml").write_text(FILE)
        try:
            for name in (asked.part,) if asked.part else PARTS:
                for trial in PARTS[name](user):
                    found.append(trial)
                    if not asked.json:
                        print(f"{'ok   ' if trial.holds else 'WRONG'} {trial.name}: {trial.found}")
        finally:
            user.down()
            user.types("broker", "stop")
    if asked.json:
        print(json.dumps([asdict(trial) for trial in found]))
    return 0 if all(trial.holds for trial in found) else 1


if __name__ == "__main__":
    sys.exit(main())
