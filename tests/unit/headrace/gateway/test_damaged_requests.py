"""Damaged requests get an error that names the fault, and other clients get their answers;
``python -m benchmarks.gateway_fuzz`` sends 100,000 of each kind to a gateway on Kafka."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks.gateway_fuzz.__main__ import KINDS, fuzz
from benchmarks.gateway_fuzz.damage import Target
from schemas.records import Query
from tests.gateway_world import LIMITS, PIPELINE, BrokerInTest, a_gateway, an_answer

MOST_BYTES, COUNT = 20_000, 150
ROOMY = replace(
    LIMITS, body_bytes=MOST_BYTES, held_bytes=10**7, connections=200, requests=200, idle_s=2.0,
    body_s=2.0,
)  # fmt: skip


async def fuzzed(kinds: Sequence[str], count: int) -> dict[str, dict[str, int]]:
    """Return the results of this many requests of each kind, none of which ended incorrectly."""
    broker = BrokerInTest()

    def echo(query: Query) -> None:
        broker.tell(an_answer(query.id, query.payload))

    broker.on_send = echo
    async with a_gateway(broker, limits=ROOMY) as gateway:
        places = f"127.0.0.1:{gateway.http}", f"127.0.0.1:{gateway.grpc}"
        target = Target(*places, PIPELINE.name, MOST_BYTES)
        found, wrong = await fuzz(target, kinds, 20_261_128, range(count), 75)
    assert wrong == 0
    return {kind: dict(counted) for kind, counted in found.items()}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_requests_of_each_kind_get_an_error_that_names_the_fault(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    found = asyncio.run(fuzzed([kind], COUNT))
    assert sum(found[kind].values()) == COUNT
    assert not caplog.records
