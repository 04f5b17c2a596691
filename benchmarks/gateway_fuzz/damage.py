"""The targets of damaged requests, and how requests of a kind are sent and counted."""

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

# Beyond the SLO of benchmarks/pipelines/noop.yaml, with egress's grace and the gateway's patience.
WITHIN_S = 150.0
T = TypeVar("T")
SILENT = "silent"  # neither a response nor the connection's end within WITHIN_S


@dataclass(frozen=True, slots=True)
class Target:
    """A gateway: host:port of its protocols, a model that takes any bytes, the largest body."""

    http: str
    grpc: str
    model: str
    most_bytes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a request, and whether it is right for that request."""

    name: str
    right: bool


Send = Callable[[int], Awaitable[Outcome]]


async def outcomes(
    kind: str, numbers: Iterator[int], at_once: int, send: Send
) -> tuple[Counter[str], int]:
    """Return the number of requests by outcome, and that of wrong outcomes, which are printed."""
    found: Counter[str] = Counter()
    wrong = 0

    async def worker() -> None:
        nonlocal wrong
        for number in numbers:  # shared: each takes the next
            try:
                async with asyncio.timeout(WITHIN_S):
                    outcome = await send(number)
            except TimeoutError:
                outcome = Outcome(SILENT, right=False)
            found[outcome.name] += 1
            if not outcome.right:
                wrong += 1
                print(f"{kind} {number}: {outcome.name}", file=sys.stderr)

    await asyncio.gather(*(worker() for _ in range(at_once)))
    return found, wrong


def cut_and_put(rng: np.random.Generator, body: bytes) -> bytes:
    """Return bytes of which up to three pieces are cut out, with others in their place."""
    changed = bytearray(body)
    for _ in range(rng.integers(0, 4)):
        at = int(rng.integers(0, len(changed) + 1))
        cut, put = int(rng.integers(0, 12)), int(rng.integers(0, 6))
        changed[at : at + cut] = rng.bytes(put)
    return bytes(changed)


def one_of(rng: np.random.Generator, choices: Sequence[T]) -> T:
    """Return one of the choices."""
    return choices[int(rng.integers(len(choices)))]
