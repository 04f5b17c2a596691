"""Run the demo of sessions: six users with objectives and data of their own, through three changes.

Every step is an ordinary command in a process of its own, printed before it runs; the demo adds the
order and the clock. The broker and the run directory are the demo's, below a temporary
``HEADRACE_HOME``.
"""

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.broker.connect import KAFKA_CONFIG
from headrace.client.defaults import BOOTSTRAP
from headrace.cluster.run_state import read_state
from headrace.cluster.supervisor import last_word
from headrace.config.pipeline_file import PipelineFile
from headrace.errors import Unsuccessful
from headrace.processes import HEADRACE, run_directory

FIRST_PLAN_WITHIN = "60s"  # on a busy machine
SERVED_WITHIN_S = 300.0  # all sessions, likewise
LOOK_EVERY_S = 5.0
SETTLE_EVERY_S = 2.0
CHANGES = 0.22  # of the seconds, then the first data change; the others follow at that distance
SLOWER = "0.02Mbps"  # a tenth of the file's link
LINK = "handheld>depot"
BROKER_NAMED_BY = (BOOTSTRAP, KAFKA_CONFIG)  # variables of the user's environment
ALL_OVER_S = 60.0  # after the load, for its answers


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A session of the demo: its objectives, its queries/s, and the workload that its inputs
    change to ("": they stay)."""

    name: str
    slo: str
    accuracy: float
    rate: float
    becomes: str = ""


USERS = (
    User(name="north", slo="1500ms", accuracy=0.80, rate=8.0, becomes="postcode.workload:Dim"),
    User(name="south", slo="1500ms", accuracy=0.80, rate=8.0, becomes="postcode.workload:Noisy"),
    User(name="far", slo="900ms", accuracy=0.80, rate=4.0),
    User(name="sharp", slo="2s", accuracy=0.90, rate=2.0),
    User(name="quick", slo="700ms", accuracy=0.75, rate=2.0),
    User(name="calm", slo="3s", accuracy=0.85, rate=1.0),
)
MOVED = "far"  # the session whose link becomes slower


@dataclass(slots=True)
class SessionDemo:
    """The demo's state: the file, its seconds of load, and what it has seen."""

    file: PipelineFile
    home: Path
    seconds: float
    show: Callable[[str], None]
    open_s: dict[str, float] = field(default_factory=dict)  # until it served, by session
    changes: list[dict[str, Any]] = field(default_factory=list)
    loads: dict[str, dict[str, Any]] = field(default_factory=dict)

    def command(self, name: str, *options: str) -> list[str]:
        """Print a command as a user types it; return it as a process."""
        words = (*name.split(), os.path.relpath(self.file.path), *options)
        self.show(f"\n$ headrace {' '.join(map(shlex.quote, words))}")
        return [*HEADRACE, *name.split(), str(self.file.path), *options]

    def run(self, name: str, *options: str, least: bool = False) -> None:
        """Run a command and show what it prints as it prints it; raise ``Unsuccessful`` if it
        fails.

        ``least``: a failure is only shown.
        """
        with subprocess.Popen(
            self.command(name, *options), env=self.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            said = ""
            for line in process.stdout:
                said += line
                self.show(line.rstrip("\n"))
        if process.returncode:
            self._go_on_or_end(name, process.returncode, said, least=least)

    def _go_on_or_end(self, name: str, code: int, said: str, *, least: bool) -> None:
        """Raise ``Unsuccessful`` if the pipeline has ended, which then caused the failure, or if a
        command other than a ``least`` one failed."""
        if (why := self.ended()) and name not in ("up", "down"):
            raise Unsuccessful(f"headrace {name} cannot work: `headrace up` has ended: {why}")
        if not least:
            raise Unsuccessful(f"headrace {name} failed with {code}: {said.rstrip()}")

    def ended(self) -> str:
        """Return the last line that `headrace up` wrote if it has ended; "": it runs."""
        directory = run_directory(self.file.pipeline.name, self.environment)
        state = read_state(directory)
        if state is not None and state.supervisor.alive:
            return ""
        return last_word(directory / "up.log") or "it printed no output"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the demo's processes; it names no broker but the demo's own."""
        own = {name: value for name, value in os.environ.items() if name not in BROKER_NAMED_BY}
        return {**own, "HEADRACE_HOME": str(self.home), "PYTHONWARNINGS": "ignore"}

    def sessions(self) -> dict[str, dict[str, Any]]:
        """Return the sessions by name, as ``session list --json`` has them."""
        done = subprocess.run(
            [*HEADRACE, "session", "list", str(self.file.path), "--json"],
            env=self.environment, text=True, check=False, capture_output=True,
        )  # fmt: skip
        if done.returncode:
            self._go_on_or_end("session list", done.returncode, done.stderr, least=False)
        return {row["session"]: row for row in json.loads(done.stdout)}

    # ------------------------------------------------------------------ the acts

    def open_sessions(self) -> None:
        """Open every session, and wait until each serves or no plan meets its objectives."""
        for user in USERS:
            began = time.monotonic()
            objectives = ("--slo", user.slo, "--accuracy", f"{user.accuracy:g}")
            wait = ("--wait", FIRST_PLAN_WITHIN)
            self.run("session open", user.name, *objectives, *wait, least=True)
            self.open_s[user.name] = round(time.monotonic() - began, 1)
            self.show(f"# this took {self.open_s[user.name]:g} s")
        self._settle()
        # A busy machine's search may end before it has profiled enough.
        for name, row in self.sessions().items():
            if _refused(row):
                self.run("session replan", name)
        self._settle()
        self.run("session list")

    def _settle(self) -> None:
        """Wait until every session serves, or no plan meets its objectives."""
        until = time.monotonic() + SERVED_WITHIN_S
        while time.monotonic() < until:
            rows = self.sessions().values()
            if all(row["state"] == "serving" or _refused(row) for row in rows):
                return
            time.sleep(SETTLE_EVERY_S)  # a look costs a process, and searches need the processor

    def play(self) -> None:
        """Send the users' queries through the three changes."""
        changes = {
            (1 + number) * CHANGES * self.seconds: change
            for number, change in enumerate((*(u for u in USERS if u.becomes), None))
        }
        with contextlib.ExitStack() as stack:
            ends = {user.name: _change_s(changes, user) for user in USERS}
            running = [
                (user.name, self._load(stack, user, ends[user.name] or self.seconds, ""))
                for user in USERS
            ]
            began = time.monotonic()
            while (elapsed_s := time.monotonic() - began) < self.seconds or changes:
                for at_s in [each for each in changes if each <= elapsed_s]:
                    user = changes.pop(at_s)
                    if user is None:
                        self._slow_link()
                    else:
                        left_s = self.seconds - elapsed_s
                        running.append((user.name, self._load(stack, user, left_s, user.becomes)))
                        self._note(user.name, f"inputs change to {user.becomes.rpartition(':')[2]}")
                self.run("session list", least=True)  # a busy broker is no reason to end
                time.sleep(LOOK_EVERY_S)
            for name, process in running:
                self._await(name, process)

    def _load(
        self, stack: contextlib.ExitStack, user: User, seconds: float, workload: str
    ) -> "subprocess.Popen[str]":
        options = ["--session", user.name, "--rate", f"{user.rate:g}", "--seconds",
                   f"{max(seconds, 1.0):.0f}", "--labels", "--json"]  # fmt: skip
        options += ["--workload", workload, "--seed", "1"] if workload else []
        process = subprocess.Popen(
            self.command("load", *options), env=self.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        stack.callback(process.kill)
        return process

    def _await(self, name: str, process: "subprocess.Popen[str]") -> None:
        out, _ = process.communicate(timeout=self.seconds + ALL_OVER_S)
        if not out:  # it prints what it counted, also where queries are lost
            self._go_on_or_end("load", process.returncode, "", least=False)
        found = json.loads(out)
        known = self.loads.setdefault(name, {"queries": 0, "lost": 0})
        for key in known:
            known[key] += found[key]

    def _slow_link(self) -> None:
        self.run("session link", MOVED, LINK, "--rate", SLOWER)
        self._note(MOVED, f"link {LINK} drops to a tenth of its rate")

    def _note(self, name: str, what: str) -> None:
        self.show(f"# {what}: session {name}")
        self.changes.append({"session": name, "what": what, "at_s": time.time()})


def _refused(row: Mapping[str, Any]) -> bool:
    return bool(row["search"] and row["search"]["stopped"] and not row["plans"])


def _change_s(changes: Mapping[float, User | None], user: User) -> float | None:
    return next((at_s for at_s, each in changes.items() if each is user), None)


@contextlib.contextmanager
def _pipeline(demo: SessionDemo) -> Iterator[None]:
    demo.run("up", "--detach")
    try:
        yield
    finally:
        demo.run("down", least=True)
        broker = [*HEADRACE, "broker", "stop"]
        subprocess.run(broker, env=demo.environment, check=False, stdout=subprocess.DEVNULL)


def run_session_demo(
    file: PipelineFile, seconds: float, show: Callable[[str], None]
) -> dict[str, Any]:
    """Run the demo with ``seconds`` of load; return its result as JSON.

    Raises ``Unsuccessful`` where a command fails.
    """
    home = Path(tempfile.mkdtemp(prefix="headrace-sessions-"))
    demo = SessionDemo(file, home, seconds, show)
    with _pipeline(demo):
        demo.open_sessions()
        demo.play()
        for name in dict.fromkeys(each["session"] for each in demo.changes):
            demo.run("session show", name)
        demo.run("status", "--once", least=True)
        rows = demo.sessions()
    shutil.rmtree(home)
    return {
        "sessions": list(rows.values()),
        "open_seconds": demo.open_s,
        "changes": demo.changes,
        "served": sum(row["state"] == "serving" for row in rows.values()),
        "loads": demo.loads,
        "lost": sum(each["lost"] for each in demo.loads.values()),
    }
