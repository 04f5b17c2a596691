"""Partitions of a pipeline that ``headrace up`` runs are changed while queries keep coming."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from benchmarks.received_answers import ends
from benchmarks.rig import ROOT, Rig
from benchmarks.squares import PIPELINE
from headrace.cluster.run_state import read_state
from schemas.effects import OUTPUTS, QUERIES
from schemas.records import ANSWERED
from tests.integration.brought_up import at_home
from tests.integration.rigs import check_one_answer_each

pytestmark = pytest.mark.kafka

RATE = 20.0
WITHIN_S = 90.0
BEFORE, AFTER = 2, 4  # partitions of the outputs topic
CLUSTER = {"devices": {"cpu": 3}, "ingress": 1, "egress": 2}


class Run:
    """A pipeline that commands start and end; its rig sends and reads, and starts no role."""

    def __init__(self, broker: str, folder: Path) -> None:
        description = {**PIPELINE, "slo": "30s", "egress_partitions": BEFORE, "cluster": CLUSTER}
        self.rig = Rig(broker, folder, description)
        self.env = at_home(folder, broker)

    def types(self, command: str, *options: str) -> None:
        """Run a command on the pipeline to its end while queries keep coming."""
        words = [sys.executable, "-m", "headrace", command, str(self.rig.file.path), *options]
        with self.rig.log(command).open("ab") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log, env=self.env, cwd=ROOT)
        self.rig.until(lambda: process.poll() is not None, f"headrace {command}", WITHIN_S)
        assert process.returncode == 0, self.rig.log(command).read_text()

    def role_log(self, role: str) -> str:
        return (self.folder / f"{role}.log").read_text()

    @property
    def folder(self) -> Path:
        return self.rig.folder / "run" / self.rig.name

    def edit(self, egress_partitions: int) -> None:
        """Change ``egress_partitions`` in the pipeline's file."""
        path = self.rig.file.path
        description = yaml.safe_load(path.read_text())
        path.write_text(yaml.safe_dump({**description, "egress_partitions": egress_partitions}))

    def signal(self, role: str, number: int) -> float:
        """Send a signal to a role; return the time."""
        state = read_state(self.folder)
        assert state is not None
        (process,) = [each for each in state.roles if each.name == role]
        os.killpg(process.pid, number)
        return time.time()

    def back(self, role: str, since_s: float) -> None:
        """Wait until a role that began after ``since_s`` reports."""
        self.rig.until(
            lambda: self.rig.reports[role].incarnation > since_s, f"{role} to report", WITHIN_S
        )

    def restart(self, role: str) -> None:
        """Kill a role, and wait until its supervisor has replaced it and it reports."""
        self.back(role, self.signal(role, signal.SIGKILL))


@pytest.fixture
def run(broker: str, tmp_path: Path) -> Iterator[Run]:
    run = Run(broker, tmp_path)
    try:
        run.types("up", "--detach")
        run.rig.offer(RATE)
        run.rig.pass_time(1)
        yield run
    finally:
        run.rig.offer(0)
        run.types("down")
        run.rig.close()


@pytest.mark.slow
def test_queries_in_partitions_that_were_added_under_traffic_are_answered_once(run: Run) -> None:
    rig = run.rig
    rig.add_partitions(QUERIES, 6)

    def answered() -> set[int]:
        return {a.origin.partition for a in rig.answers if a.outcome == ANSWERED}

    rig.until(lambda: answered() == set(range(6)), "answers of every partition", WITHIN_S)
    assert "has 6 partitions and had 4 when this role began" in run.role_log("ingress-0")
    check_one_answer_each(rig)
    added = [a for a in rig.answers if a.origin.partition >= 4]
    print(f"of the added partitions: {ends(added)}")


@pytest.mark.slow
def test_egress_partitions_change_between_two_starts_under_traffic(run: Run) -> None:
    rig = run.rig
    for count in (AFTER, BEFORE):
        run.types("down")
        if count == AFTER:
            rig.add_partitions(OUTPUTS, AFTER)
        run.edit(count)
        run.types("up", "--detach")
        rig.pass_time(2)
    check_one_answer_each(rig)
    print(f"of all queries: {ends(rig.answers)}")


@pytest.mark.slow
def test_egress_partitions_change_role_by_role_under_traffic(run: Run) -> None:
    rig = run.rig
    rig.add_partitions(OUTPUTS, AFTER)
    for count in (AFTER, BEFORE):
        run.edit(count)
        for role in ("egress-0", "cpu-0", "ingress-0", "egress-1", "cpu-1", "cpu-2"):
            run.restart(role)
    rig.pass_time(2)
    check_one_answer_each(rig)
    print(f"of all queries: {ends(rig.answers)}")


@pytest.mark.slow
def test_egress_partitions_change_while_egress_is_behind(run: Run) -> None:
    """Ingress sends nothing to other partitions before egress has closed what it had sent."""
    rig = run.rig
    rig.add_partitions(OUTPUTS, AFTER)
    for count in (AFTER, BEFORE):
        for role in ("egress-0", "egress-1"):
            run.signal(role, signal.SIGSTOP)
        rig.pass_time(1)
        run.edit(count)
        killed_s = run.signal("ingress-0", signal.SIGKILL)
        waits = f"from before egress_partitions became {count}"
        rig.until(lambda waits=waits: waits in run.role_log("ingress-0"), waits)
        for role in ("egress-0", "egress-1", "cpu-0", "cpu-1", "cpu-2"):
            run.restart(role)
        run.back("ingress-0", killed_s)
        rig.pass_time(2)
    check_one_answer_each(rig)
    print(f"of all queries: {ends(rig.answers)}")
