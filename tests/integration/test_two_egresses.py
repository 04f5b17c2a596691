"""Of two egresses with one name on a real broker, the older one sends no more answers."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from subprocess import Popen

import pytest

from benchmarks.rig import Rig
from benchmarks.squares import PIPELINE
from tests.integration.rigs import under_load

pytestmark = pytest.mark.kafka

RATE = 30.0


@pytest.fixture(scope="module")
def running(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with closing(Rig(broker, tmp_path_factory.mktemp("egresses"), PIPELINE)) as rig:
        rig.up()
        yield rig


@pytest.fixture
def rig(running: Rig) -> Iterator[Rig]:
    yield from under_load(running, RATE)


@pytest.fixture
def shared(broker: str, tmp_path: Path) -> Iterator[Rig]:
    """Run a pipeline of two ingresses and two egresses."""
    cluster = {**PIPELINE["cluster"], "ingress": 2, "egress": 2}
    rig = Rig(broker, tmp_path, {**PIPELINE, "cluster": cluster})
    try:
        rig.up()
        rig.offer(RATE)
        yield rig
    finally:
        rig.close()


def second(rig: Rig) -> "Popen[bytes]":
    """Start a second egress of the same name; return the process of the first."""
    first = rig._processes.pop("egress-0")
    rig.start("egress-0")
    return first


def ended(rig: Rig, process: "Popen[bytes]") -> int:
    rig.until(lambda: process.poll() is not None, "one egress to end")
    return process.returncode


def each_answered_once(rig: Rig) -> None:
    rig.settle()
    rig.answers.check_single()
    assert {a.id: a.origin for a in rig.answers} == {n: q.origin for n, q in rig.asked.items()}


def test_an_egress_that_was_frozen_and_replaced_answers_nothing_more(rig: Rig) -> None:
    rig.freeze("egress-0")
    rig.pass_time(1)
    before = rig.reports["egress-0"].incarnation
    first = second(rig)
    rig.until(
        lambda: rig.reports["egress-0"].incarnation > before and rig.serves(),
        "the second egress to serve",
    )
    rig._processes["first"] = first
    rig.thaw("first")
    del rig._processes["first"]
    assert ended(rig, first) == 1
    said = rig.log("egress-0").read_text()
    assert "has taken over partitions" in said or "this process stood still for" in said
    rig.pass_time(1)
    each_answered_once(rig)


def test_only_one_of_two_egresses_that_start_at_once_serves(rig: Rig) -> None:
    rig.kill("egress-0")
    rig.start("egress-0")
    first = second(rig)
    other = rig._processes["egress-0"]
    rig._processes.pop("egress-0")
    rig.until(lambda: first.poll() is not None or other.poll() is not None, "one to end")
    loser, winner = (first, other) if first.poll() is not None else (other, first)
    assert loser.returncode in (1, 2)  # lost its lease, or found the name in use
    rig._processes["egress-0"] = winner
    rig.until(rig.serves, "the other to serve")
    rig.pass_time(1)
    each_answered_once(rig)


def test_two_ingresses_and_two_egresses_share_the_queries_and_one_of_each_may_die(
    shared: Rig,
) -> None:
    def each_serves() -> bool:
        counts = {name: report.counts for name, report in shared.reports.items()}
        return all(counts[f"ingress-{n}"]["admitted"] for n in (0, 1)) and all(
            any(counts[f"egress-{n}"][end] for end in ("answered", "late", "dropped", "failed"))
            for n in (0, 1)
        )

    shared.until(each_serves, "queries and answers of each")
    for name in ("egress-1", "ingress-0"):
        shared.kill(name)
        shared.start(name)
        shared.until(shared.serves, f"{name} to serve again")
    shared.until(each_serves, "queries and answers of each")
    each_answered_once(shared)
