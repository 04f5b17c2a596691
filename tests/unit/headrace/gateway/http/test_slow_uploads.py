"""The time that a client takes to send its body is the client's, not the pipeline's."""

import asyncio
import time
from math import inf

import pytest
from msgspec.structs import replace

from headrace.gateway.concurrency_limit import FEWEST
from tests.gateway_world import (
    BrokerInTest,
    a_gateway,
    a_plan,
    answering,
    parts,
    posted,
    until,
)

SLO_S = 50.0
UPLOAD_S = 100.0


def sent_slowly(
    monkeypatch: pytest.MonkeyPatch, count: int, **headers: str
) -> tuple[list[int], list[float | None], float]:
    """Post requests whose bodies come ``UPLOAD_S`` after their heads; return the statuses, the
    seconds that the queries' deadlines leave, and the limit on queries in flight afterwards."""
    ahead_s = 0.0
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + ahead_s)
    plan = a_plan()
    broker = BrokerInTest(plan=replace(plan, settings=replace(plan.settings, slo_s=SLO_S)))
    broker.on_send = answering(broker)
    head, _, body = posted(b"x", Inference_Header_Content_Length="0", **headers).partition(
        b"\r\n\r\n"
    )

    async def play() -> tuple[list[int], list[float | None], float]:
        nonlocal ahead_s
        async with a_gateway(broker) as gateway:
            found = []
            for _ in range(count):
                reader, writer = await asyncio.open_connection("127.0.0.1", gateway.http)
                writer.write(head + b"\r\n\r\n")
                await until(lambda: gateway.front.bodies.used > 0)
                ahead_s += UPLOAD_S
                writer.write(body)
                found.append(parts(await reader.read())[0])
                writer.close()
            left = [q.deadline_s and q.deadline_s - time.time() for q in broker.sent]
            return found, left, gateway.model.limit

    return asyncio.run(play())


def test_slow_uploads_are_no_misses_of_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    statuses, _, limit = sent_slowly(monkeypatch, 2 * FEWEST)
    assert statuses == [200] * 2 * FEWEST
    assert limit == inf


def test_the_callers_time_goes_on_while_it_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    in_time = str(round((UPLOAD_S + SLO_S / 2) * 1e3))
    statuses, (left_s,), _ = sent_slowly(monkeypatch, 1, headrace_timeout_ms=in_time)
    assert statuses == [200]
    assert left_s is not None
    assert left_s <= SLO_S / 2
    too_late = str(round(UPLOAD_S / 2 * 1e3))
    assert sent_slowly(monkeypatch, 1, headrace_timeout_ms=too_late)[:2] == ([504], [])
