"""Measure encoding and decoding of records, against plain fastavro and Apache Avro.

    python -m benchmarks.codec [--json] [--rounds 15]

``headrace`` converts between records and rows; ``fastavro`` starts from rows with the same schema,
so the ratio is the overhead of our records; ``apache`` is the avro package on the same rows. The
three alternate within a round. Figures are microseconds of CPU time of this process: median over
the rounds and interquartile range.
"""

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import avro.io
import avro.schema
import fastavro
import numpy as np

from schemas.codec.rows import TO_ROW
from schemas.codec.schema_store import CURRENT
from schemas.codec.single_object import decode, encode
from schemas.records import Answer, End, Hop, Item, Origin, Record, Work

NOW = 1_767_225_600.0
CALLS = 300
APACHE_CALLS = 15  # ten times slower, so fewer calls suffice


@dataclass(frozen=True, slots=True)
class Case:
    """A record to measure, with its name in the report."""

    name: str
    record: Record


def hops(count: int) -> tuple[Hop, ...]:
    return tuple(
        Hop(
            task="locate", variant="components", worker=f"worker-{n}", epoch=12,
            received_s=NOW + n, started_s=NOW + n + 0.002, finished_s=NOW + n + 0.007, batch=4,
            released="idle",
        )
        for n in range(count)
    )  # fmt: skip


def work(items: int, path: int, value: Any) -> Work:
    return Work(
        query_id="7-123456", origin=Origin(7, 123456), task="read", created_s=NOW,
        deadline_s=NOW + 0.3, epoch=12,
        items=tuple(
            Item(branch=(0, n), credit=10**18 // items, value=value, path=hops(path))
            for n in range(items)
        ),
    )  # fmt: skip


def answer(path: int) -> Answer:
    return Answer(
        id="7-123456", origin=Origin(7, 123456), outcome="answered", result="75001",
        created_s=NOW, deadline_s=NOW + 0.3, answered_s=NOW + 0.02, epoch=12,
        expected_accuracy=0.96, paths=(hops(path),), ends=(End("answered", "read"),),
    )  # fmt: skip


CASES = (
    Case("work, 1 item, 1 hop, 100 B", work(1, 1, bytes(100))),
    Case("work, 1 item, 2 hops, 0.5 kB", work(1, 2, bytes(500))),
    Case("work, 20 items, 1 hop, 100 B", work(20, 1, bytes(100))),
    Case("work, 1 item, 1 hop, 100 kB array", work(1, 1, np.zeros((320, 320), np.uint8))),
    Case("answer, 2 hops", answer(2)),
)


def calls(record: Record) -> dict[str, tuple[Callable[[], object], int]]:
    """Return the timed calls by name, each with the number of calls per reading."""
    schema = CURRENT[type(record).__name__]
    data = encode(record)
    row = TO_ROW[type(record)](record)
    body = data[len(schema.prefix) :]
    apache = avro.schema.parse(schema.text)
    read_row = fastavro.schemaless_reader(BytesIO(body), schema.parsed, None)

    def fastavro_encode() -> bytes:
        buffer = BytesIO()
        fastavro.schemaless_writer(buffer, schema.parsed, row)
        return buffer.getvalue()

    def apache_encode() -> bytes:
        buffer = BytesIO()
        avro.io.DatumWriter(apache).write(read_row, avro.io.BinaryEncoder(buffer))
        return buffer.getvalue()

    def apache_decode() -> object:
        reader = avro.io.DatumReader(apache, apache)
        return reader.read(avro.io.BinaryDecoder(BytesIO(body)))

    assert fastavro_encode() == apache_encode() == body
    return {
        "headrace_encode_us": (lambda: encode(record), CALLS),
        "fastavro_encode_us": (fastavro_encode, CALLS),
        "apache_encode_us": (apache_encode, APACHE_CALLS),
        "headrace_decode_us": (lambda: decode(data), CALLS),
        "fastavro_decode_us": (
            lambda: fastavro.schemaless_reader(BytesIO(body), schema.parsed, None),
            CALLS,
        ),
        "apache_decode_us": (apache_decode, APACHE_CALLS),
    }


def microseconds(call: Callable[[], object], count: int) -> float:
    start = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - start) / count * 1e6


def measured(case: Case, rounds: int) -> dict[str, Any]:
    """Measure a case; return its medians, spreads and ratios."""
    timed = calls(case.record)
    readings: dict[str, list[float]] = {name: [] for name in timed}
    for turn in range(rounds + 1):
        for name, (call, count) in timed.items():
            reading = microseconds(call, count)
            if turn:  # the first round warms up
                readings[name].append(reading)
    report: dict[str, Any] = {"case": case.name, "bytes": len(encode(case.record))}
    for name, found in readings.items():
        low, middle, high = statistics.quantiles(found, n=4)
        report[name] = round(middle, 2)
        report[name.replace("_us", "_spread_us")] = round(high - low, 2)
    for way in ("encode", "decode"):
        ours = report[f"headrace_{way}_us"]
        report[f"{way}_ratio_fastavro"] = round(ours / report[f"fastavro_{way}_us"], 2)
        report[f"{way}_ratio_apache"] = round(ours / report[f"apache_{way}_us"], 3)
    return report


def shown(report: dict[str, Any]) -> str:
    """Return a case as lines of text."""
    lines = [f"{report['case']} ({report['bytes']} bytes)"]
    for way in ("encode", "decode"):
        parts = [
            f"{who} {report[f'{who}_{way}_us']:8.2f} ± {report[f'{who}_{way}_spread_us']:.2f}"
            for who in ("headrace", "fastavro", "apache")
        ]
        ratio = report[f"{way}_ratio_fastavro"]
        lines.append(f"  {way} µs   {'   '.join(parts)}   {ratio:.2f} x fastavro")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=15, help="readings per figure (15)")
    options = parser.parse_args()
    reports = []
    for case in CASES:
        print(f"measuring: {case.name}", file=sys.stderr)
        reports.append(measured(case, max(2, options.rounds)))
        if not options.json:
            print(shown(reports[-1]))
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    versions = {"fastavro": fastavro.__version__, "avro": avro.__version__}
    if options.json:
        print(json.dumps({"machine": machine, "rounds": options.rounds, **versions,
                          "cases": reports}))  # fmt: skip
    else:
        print(f"{machine}, fastavro {versions['fastavro']}, avro {versions['avro']}")


if __name__ == "__main__":
    main()
