"""Send damaged requests to a gateway, which must serve each or answer it with a client error.

    python -m benchmarks.gateway_fuzz [--kind bodies|heads|calls] [--seed 17] [--first 0]
        [--count 100000] [--at-once 32]

``--count`` requests of each kind, all kinds at once unless one is named; a finding is repeated with
its kind, ``--first n --count 1``. The gateway, before two stages that take any bytes
(benchmarks/pipelines/noop.yaml, SLO 60 s), runs on a broker of its own, so that no operator fails
and no query is late. Meanwhile a client with whole requests must get its answers.
The exit code is 1 if a request ended otherwise than it may.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.gateway_fuzz.bodies import send_bodies
from benchmarks.gateway_fuzz.calls import send_calls
from benchmarks.gateway_fuzz.damage import Target
from benchmarks.gateway_fuzz.heads import send_heads
from benchmarks.gateway_fuzz.honest_client import honest_client
from benchmarks.overhead import FILE
from headrace.broker.local_broker import borrow
from tests.integration.brought_up import brought_up
from tests.integration.gateways import a_gateway

MOST_BYTES = 100_000
WAITS = "5s"  # the gateway's limit for the rest of a partial request

Kind = Callable[[Target, int, Iterator[int], int], Awaitable[tuple[Counter[str], int]]]
KINDS: dict[str, Kind] = {"bodies": send_bodies, "heads": send_heads, "calls": send_calls}


async def fuzz(
    target: Target, kinds: Sequence[str], seed: int, numbers: range, at_once: int
) -> tuple[dict[str, Counter[str]], int]:
    """Send the requests of each kind, ``at_once`` of them at a time, beside an honest client.

    Return their number by outcome, and that of the client's answers, by kind; and the number of
    wrong outcomes.

    Raises ``AssertionError`` if the honest client does not get its answers.
    """
    async with honest_client(target) as answered:
        sent = await asyncio.gather(
            *(KINDS[kind](target, seed, iter(numbers), at_once) for kind in kinds)
        )
    found = {kind: counted for kind, (counted, _) in zip(kinds, sent, strict=True)}
    found["honest"] = Counter({"its own answer": answered.count})
    return found, sum(wrong for _, wrong in sent)


def run(
    bootstrap: str, home: Path, kinds: Sequence[str], seed: int, numbers: range, at_once: int
) -> tuple[dict[str, Counter[str]], int]:
    """Fuzz a gateway of its own, as ``fuzz`` does."""
    env = {**os.environ, "HEADRACE_HOME": str(home), "HEADRACE_BOOTSTRAP": bootstrap}
    options = ("--most-bytes", str(MOST_BYTES), "--idle", WAITS, "--body", WAITS)
    with brought_up(FILE, env), a_gateway(FILE, env, *options) as running:
        target = Target(running.http.removeprefix("http://"), running.grpc, "noop", MOST_BYTES)
        return asyncio.run(fuzz(target, kinds, seed, numbers, at_once))


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz and print; return the exit code."""
    parser = argparse.ArgumentParser(description="Damaged requests for a gateway.")
    parser.add_argument("--kind", choices=list(KINDS), action="append", help="all if left out")
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--first", type=int, default=0, help="number of the first request")
    parser.add_argument("--count", type=int, default=100_000, help="of each kind")
    parser.add_argument("--at-once", type=int, default=32, help="of each kind")
    said = parser.parse_args(arguments)
    numbers, kinds = range(said.first, said.first + said.count), said.kind or list(KINDS)
    with tempfile.TemporaryDirectory() as home, borrow(Path(home)) as broker:
        found, wrong = run(broker.bootstrap, Path(home), kinds, said.seed, numbers, said.at_once)
    print(f"{numbers.start} to {numbers.stop - 1} of seed {said.seed}, {wrong} ended wrongly")
    for kind, counted in found.items():
        shown = ", ".join(f"{count} {name or 'closed'}" for name, count in counted.most_common())
        print(f"{kind}: {shown}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
