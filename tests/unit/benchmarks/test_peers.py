"""The load, the figures and the page of ``python -m benchmarks.peers``."""

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from psutil import Process

from benchmarks.peers.connections import HttpPool, http, is_whole
from benchmarks.peers.measure import CAPACITY, Row, Seen, figures
from benchmarks.peers.open_loop import LATE, SERVED, Ended, OpenLoop, closed_loop
from benchmarks.peers.page import NOTES, best, compared, is_met, median, page
from benchmarks.peers.processes import Tree, server, spent_s
from benchmarks.peers.systems import APPS, SYSTEMS, lines_of
from headrace.machine import free_port, machine

LINES = {"noop": dict.fromkeys(SYSTEMS, 20) | {"headrace": 10}}


async def at_once(_: float) -> str:
    return SERVED


async def never(_: float) -> str:
    return str(await asyncio.Event().wait())


def offered(ask: Any, slo_s: float) -> list[Ended]:
    loop = OpenLoop(ask, slo_s, np.random.default_rng(1))
    return asyncio.run(loop.offer(500.0, 0.1))


def test_every_query_of_the_open_loop_ends() -> None:
    assert [each.ending for each in offered(at_once, 5.0)] == [SERVED] * 50
    assert [each.ending for each in offered(never, 0.01)] == [LATE] * 50


def test_an_answer_after_the_slo_is_late() -> None:
    async def slow(_: float) -> str:
        return await asyncio.to_thread(lambda: SERVED)

    assert {each.ending for each in offered(slow, 1e-6)} == {LATE}


def test_the_closed_loop_keeps_its_number_in_flight() -> None:
    open_now, most = 0, 0

    async def counted(_: float) -> str:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await asyncio.sleep(0)
        open_now -= 1
        return SERVED

    assert len(asyncio.run(closed_loop(counted, 7, 0.02))) >= 7
    assert most == 7


def test_unserved_query_counts_as_infinitely_slow() -> None:
    ended = [Ended(0.010, SERVED)] * 60 + [Ended(0.25, LATE)] * 40
    seen = figures(Seen(ended, seconds=2.0, cpu_s=0.6, client_cpu_s=0.06))
    assert (seen["served_per_s"], seen["p50_ms"], seen["p99_ms"]) == (30.0, 10.0, None)
    assert seen["cpu_ms"] == pytest.approx(10.0)
    assert seen["endings"] == {SERVED: 60, LATE: 40}


@pytest.mark.parametrize(
    ("head", "body", "whole"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3", b"ab", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3", b"abc", True),
        (b"HTTP/1.1 408 x\r\nTransfer-Encoding: chunked", b"1\r\na\r\n", False),
        (b"HTTP/1.1 408 x\r\nTransfer-Encoding: chunked", b"1\r\na\r\n0\r\n\r\n", True),
    ],
)
def test_end_of_a_response_is_detected(head: bytes, body: bytes, whole: bool) -> None:
    assert is_whole(head, body) is whole


async def test_connections_are_kept_and_replaced() -> None:
    port = free_port()

    async def echo(request: web.Request) -> web.Response:
        if request.path == "/never":
            await asyncio.Event().wait()
        line = request.headers.get("left-ms", "").encode()
        return web.Response(body=await request.read() + line)

    app = web.Application()
    app.router.add_post("/{any}", echo)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    pool = HttpPool(port, "/echo", {})
    assert [await pool(b"one"), await pool(b"two")] == [(200, b"one"), (200, b"two")]
    async with http(port, "/echo", {}, "left-ms: {ms:.0f}\r\n") as call:
        assert await call(b"three ", 0.25) == (SERVED, b"three 250")
    late = HttpPool(port, "/never", {})
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(late(b""), 0.01)
    late.close()
    pool.close()
    await runner.cleanup()
    async with http(port, "/echo", {}, "") as call:
        assert await call(b"", 1.0) == ("connection lost", b"")


@pytest.mark.thorough
def test_stopping_a_server_ends_its_child_processes_and_keeps_its_log(tmp_path: Path) -> None:
    child = "import subprocess, sys; print('up', flush=True); subprocess.run(['sleep', '60'])"
    log = tmp_path / "server.log"
    found: list[Process] = []

    def served() -> None:
        with server([sys.executable, "-c", child], {}, tmp_path, log) as pid:
            while len(found) < 2:
                found[:] = Tree(pid).processes()
            raise TimeoutError("no answer")

    with pytest.raises(TimeoutError) as raised:
        served()
    assert raised.value.__notes__ == ["the end of server.log:\nup\n"]
    assert not any(process.is_running() for process in found)


def test_cpu_time_includes_processes_started_meanwhile() -> None:
    one, two = Process(), Process(1)
    assert spent_s({one: 2.0}, {one: 3.5, two: 0.25}) == 1.75


# ---------------------------------------------------------------------- the page


def a_row(system: str, protocol: str = "HTTP", round: int = 1, **more: Any) -> Row:
    row: dict[str, Any] = {
        "commit": "0123abc", "workload": "noop", "system": system, "protocol": protocol,
        "round": round, "load": CAPACITY, "offered_per_s": None, "served_per_s": 100.0,
        "p50_ms": 5.0, "p99_ms": None, "cpu_ms": 2.0, "client_cpu_ms": 0.1,
        "endings": {SERVED: 100},
    }  # fmt: skip
    return Row(**(row | more))


def test_the_best_protocol_of_the_median_round_counts() -> None:
    rows = [
        a_row("ray", served_per_s=100.0), a_row("ray", round=2, served_per_s=120.0),
        a_row("ray", round=3, served_per_s=900.0), a_row("mlserver", "gRPC", served_per_s=110.0),
    ]  # fmt: skip
    throughput, cpu = compared(rows)
    assert best(rows, throughput) == 120.0
    assert best(rows, cpu) == 2.0
    assert median([1.0, None, None]) is None


def test_only_low_load_may_be_slower_by_half() -> None:
    rows = [a_row("ray", load=load, offered_per_s=50.0) for load in (CAPACITY, "50/s", "50 %")]
    allowed = {figure.title: figure for figure in compared(rows)}
    low, own = allowed["p50 (ms) at 50/s"], allowed["p50 (ms) at 50 % of its own capacity"]
    assert is_met(low, 7.5, 5.0)
    assert not is_met(low, 7.6, 5.0)
    assert not is_met(own, 5.1, 5.0)
    assert not is_met(own, None, 5.0)
    assert is_met(own, 5.0, None)
    assert not is_met(own, None, None)
    assert not is_met(allowed["throughput, closed loop (/s)"], 99.0, 100.0)


def test_page_marks_missed_targets() -> None:
    rows = [a_row("headrace", "Kafka", served_per_s=90.0), a_row("ray"), a_row("mlserver-one")]
    text = page(rows, LINES)
    assert text.startswith("# Beside Ray Serve and MLServer")
    assert machine() not in text  # the rows may be of another one
    assert "| **throughput, closed loop (/s)** | 90 / 100 | 0.90 |" in text
    assert "| CPU ms a query, closed loop | 2 / 2 | 1.00 |" in text
    assert "| lines of user code | 10 / 20 | 0.50 |" in text


def test_page_names_the_day_and_the_machine_of_its_rows() -> None:
    places = ("2026-12-01, one, 2 cores", "2026-12-02, other, 2 cores")
    rows = [a_row("ray", place=place, round=number) for number, place in enumerate(places, 1)]
    assert f"Measured on {places[0]} and {places[1]}. Clients" in page(rows, LINES)
    assert "stands under [history](#history)" in page([a_row("ray")], LINES)


def test_notes_hold_for_any_run() -> None:
    """They read the figures of one run, and were untrue beside the rows of another."""
    reading, _, history = NOTES.read_text().partition("## History")
    assert history
    assert not re.findall(r"\d+ (?:of|against) [\d,]+|\d/s", reading)


def test_lines_of_code_exclude_blank_lines(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n\n# why\ny = 2\n")
    assert lines_of([tmp_path / "a.py"]) == 2


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("workload", ["noop", "postcode"])
def test_every_file_of_the_applications_is_counted(system: str, workload: str) -> None:
    files = SYSTEMS[system].code(workload)
    assert files
    assert all(file.is_file() and APPS in file.parents for file in files)


@pytest.mark.parametrize("workload", ["noop", "postcode"])
def test_a_user_of_headrace_writes_the_fewest_lines(workload: str) -> None:
    lines = {name: lines_of(system.code(workload)) for name, system in SYSTEMS.items()}
    assert lines["headrace"] == min(lines.values()), lines
