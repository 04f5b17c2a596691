"""Measure the overhead of running an operator in its own process, per batch.

    python -m benchmarks.isolation [--json]

A batch of 8 payloads goes through an operator that returns it: called directly, and
through ``headrace/roles/workers/subprocess_operator.py``. The difference is the transfer in both
directions.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from headrace.roles.workers.subprocess_operator import Isolated
from operators.models.loading import load_operator
from schemas.pipeline import Variant

BATCH = 8
SIZES_BYTES = (500, 50_000, 1_000_000)
ROUNDS = 200
REPEATS = 7


class Echo:
    """Operator that returns its inputs."""

    def load(self, device: str) -> None:
        """Do nothing."""

    def predict(self, batch: list[Any]) -> list[Any]:
        return batch


def batch_us(predict: Callable[[list[Any]], list[Any]], size: int) -> float:
    """Return microseconds per batch of payloads of ``size`` bytes."""
    batch = [bytes(size)] * BATCH
    rounds = max(10, ROUNDS * 500 // size)
    predict(batch)
    began = perf_counter()
    for _ in range(rounds):
        predict(batch)
    return (perf_counter() - began) / rounds * 1e6


def compared(size: int, isolated: Any, direct: Any) -> dict[str, float]:
    """Measure both in turn, ``REPEATS`` times."""
    pairs = [
        (batch_us(isolated.predict, size), batch_us(direct.predict, size)) for _ in range(REPEATS)
    ]
    found = [first for first, _ in pairs]
    return {
        "payload_bytes": size,
        "isolated_us_per_batch": round(statistics.median(found), 1),
        "isolated_us_least": round(min(found), 1),
        "isolated_us_most": round(max(found), 1),
        "direct_us_per_batch": round(statistics.median(second for _, second in pairs), 3),
        "ratio": round(statistics.median(first / second for first, second in pairs), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    wants_json = parser.parse_args().json
    variant = Variant(
        task="echo", name="echo", operator="benchmarks.isolation:Echo", time_limit_s=60.0
    )
    isolated, direct = Isolated(variant, Path(__file__)), load_operator(variant)
    isolated.load("cpu")
    rows = [compared(size, isolated, direct) for size in SIZES_BYTES]
    if wants_json:
        print(json.dumps({"batch": BATCH, "rows": rows}))
        return
    for row in rows:
        print(
            f"{BATCH} payloads of {row['payload_bytes']:,} bytes: "
            f"{row['isolated_us_per_batch']:,.0f} us a batch in a process of its own "
            f"({row['isolated_us_least']:,.0f} to {row['isolated_us_most']:,.0f}), "
            f"{row['direct_us_per_batch']:.2f} us called directly"
        )


if __name__ == "__main__":
    main()
