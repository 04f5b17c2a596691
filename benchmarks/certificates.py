"""Make predictive certificates at loads, policies and numbers of devices that were not calibrated.

    python -m benchmarks.certificates OUT_DIR [--rows cluster ramsis postcode] [--seconds S]
        [--simulations N] [--repeats N] [--loki DATA_DIR] [--ramsis DATA_DIR]

For every row: one calibration at half of its load and at its load, then certificates
(docs/explanation/certificate.md) at 0.5, 1 and 1.5 times the load, with two other policies, and
with another number of devices. ``cluster``: 20 emulated devices (Loki's traffic pipeline with its
data, else the shipped pipeline); ``ramsis``: 60 emulated workers that choose for every batch
(needs its data); ``postcode``: the shipped pipeline on its real models, 4 CPU workers.

The exit code is 1 if a metric is missed, a null model is better in some metric, or the order of the
policies differs from the live one. OUT_DIR keeps pipelines, calibrations and certificates, and
``certificates.md`` has all of them, misses too, with commit, date, machine and its load, and the
order of the policies, predicted and live. Run it on an idle machine. Per row, the calibration takes
4 x (S + 25) s and each of the six cases three live runs of S s, times the dilation of the row, plus
some 60 s per live run for start-up and broker.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks.certificate_tables import conditions, summary, table
from benchmarks.emulated_cluster import DATA as LOKI
from benchmarks.emulated_cluster import SHIPPED, prepared
from headrace.arrivals.arrival_processes import poisson
from headrace.config.pipeline_file import read_pipeline_file
from headrace.fidelity.calibration_run import CalibrationRequest, calibrate
from headrace.fidelity.certificate import Certificate
from headrace.fidelity.fidelity_run import certificate_request, certify
from headrace.machine import machine
from headrace.simulation.world_file import store, world_path

LOADS = (0.5, 1.0, 1.5)  # of the calibrated one
RAMSIS = Path("../shared/data/ramsis")
ORDERED = ("violation", "accuracy")


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedRow:
    """A pipeline, its calibrated load, and the other settings that it is certified with."""

    name: str
    file: Path
    rate_qps: float
    dilate: float
    devices: int
    other_devices: int
    policies: tuple[str, ...]  # the first one is calibrated


def rows(names: Sequence[str], out: Path, loki: Path, ramsis: Path) -> Iterator[CertifiedRow]:
    """Write the pipelines of the named rows into ``out`` and yield them."""
    for name in names:
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        yield _ROWS[name](folder, loki, ramsis)


def _cluster(folder: Path, loki: Path, _ramsis: Path) -> CertifiedRow:
    file, _ = prepared(loki, folder, "traffic")
    return CertifiedRow(
        name="cluster", file=file, rate_qps=220.0 if loki.is_dir() else 1000.0, dilate=4.0,
        devices=20, other_devices=16, policies=("loki", "inferline", "proteus"),
    )  # fmt: skip


def _sixty(folder: Path, _loki: Path, ramsis: Path) -> CertifiedRow:
    from benchmarks.papers.ramsis import write

    write(ramsis, folder)
    return CertifiedRow(
        name="ramsis", file=folder / "image.yaml", rate_qps=2000.0, dilate=10.0, devices=60,
        other_devices=50, policies=("ramsis", "loki", "inferline"),
    )  # fmt: skip


def _postcode(folder: Path, _loki: Path, _ramsis: Path) -> CertifiedRow:
    copy = folder / SHIPPED.parent.name
    shutil.copytree(SHIPPED.parent, copy, dirs_exist_ok=True)
    return CertifiedRow(
        name="postcode", file=copy / SHIPPED.name, rate_qps=12.0, dilate=1.0, devices=4,
        other_devices=3, policies=("loki", "accurate", "fast"),
    )  # fmt: skip


_ROWS = {"cluster": _cluster, "ramsis": _sixty, "postcode": _postcode}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The size of a study: seconds of arrivals, simulations, live runs."""

    seconds: float
    simulations: int
    repeats: int


def cases(row: CertifiedRow) -> tuple[tuple[float, str, int], ...]:
    """Return (load, policy, devices) of each certificate of a row."""
    first = row.policies[0]
    return (
        *((load, first, row.devices) for load in LOADS),
        *((1.0, policy, row.devices) for policy in row.policies[1:]),
        (1.0, first, row.other_devices),
    )


def certified(row: CertifiedRow, sizes: Sizes) -> Iterator[tuple[str, Certificate]]:
    """Calibrate once, then yield each case's name and certificate."""
    file = read_pipeline_file(row.file)
    kind = file.cluster.devices[0][0]
    wish = CalibrationRequest(
        file=file, rates_qps=(row.rate_qps,), seconds=sizes.seconds, dilate=row.dilate,
        policy=row.policies[0], seed=1,
    )  # fmt: skip
    store(calibrate(wish), world_path(row.file))
    for load, policy, devices in cases(row):
        arrivals = row.file.with_name(f"poisson-{load:g}.txt")
        times = poisson(load * row.rate_qps, sizes.seconds, np.random.default_rng(2))
        arrivals.write_text("".join(f"{1e3 * at:.3f}\n" for at in times))
        certificate, _ = certify(
            certificate_request(
                file, arrivals, policy=policy, devices={kind: devices}, dilate=row.dilate,
                world=str(world_path(row.file)), simulations=sizes.simulations,
                repeats=sizes.repeats,
            )
        )  # fmt: skip
        yield f"{row.name}: {load:g} of the load, {policy}, {devices} devices", certificate


def page(found: Sequence[tuple[str, Certificate]]) -> str:
    """Return every certificate as a page."""
    short = [f"- {each}" for each in shortfalls(found)] or ["- nothing"]
    lines = [
        "# Predictive certificates",
        "",
        f"Written by `python -m benchmarks.certificates` at commit {_commit()}, "
        f"{datetime.now(UTC).isoformat(timespec='minutes')}, on {machine()}: "
        f"{summary(each for _, each in found)}. What falls short:",
        "",
        *short,
        "",
        table(found),
        "",
        *(f"- {name}: {conditions(each)}" for name, each in found),
        "",
    ]
    return "\n".join(
        [
            *lines,
            "## Order of the policies at the calibrated load",
            "",
            *(f"- {each}" for each in _orders(found)),
        ]
    )


def least_skill(certificate: Certificate) -> float | None:
    """Return the skill of the metric in which null models compare best; None if none has one."""
    return min((m.skill for m in certificate.metrics if m.skill is not None), default=None)


def shortfalls(found: Sequence[tuple[str, Certificate]]) -> list[str]:
    """Return the misses, the certificates in which a null model is better, and the rows whose order
    of policies differs from the live one."""
    short = []
    for name, certificate in found:
        skill = least_skill(certificate)
        if not certificate.met:
            short.append(f"{name}: a metric is missed")
        if skill is not None and skill <= 0.0:
            short.append(f"{name}: a null model is better (skill {skill:.2f})")
    return [*short, *(each for each in _orders(found) if ": wrong" in each)]


def _orders(found: Sequence[tuple[str, Certificate]]) -> Iterator[str]:
    """Yield, by row and metric, whether the predicted order of the policies is the live one."""
    by_row: dict[str, dict[str, Certificate]] = {}
    for name, each in found:
        row, _, case = name.partition(": ")
        if case.startswith("1 of"):
            by_row.setdefault(row, {}).setdefault(each.conditions.policy, each)
    for row, policies in by_row.items():
        for metric in ORDERED:
            yield f"{row}, {metric}: {order(list(policies.values()), metric)}"


def order(certificates: Sequence[Certificate], metric: str) -> str:
    """Return the pairs of policies whose predicted order differs from the live one.

    Pairs whose live means differ by no more than the larger spread are not judged.
    """
    found = [
        (each.conditions.policy, next(m for m in each.metrics if m.name == metric))
        for each in certificates
    ]
    judged, wrong = 0, []
    for at, (name, one) in enumerate(found):
        for other_name, other in found[at + 1 :]:
            if None in (one.live, other.live, one.predicted, other.predicted):
                continue
            live = (one.live or 0.0) - (other.live or 0.0)
            if abs(live) > max(one.spread or 0.0, other.spread or 0.0):
                judged += 1
                if live * ((one.predicted or 0.0) - (other.predicted or 0.0)) <= 0:
                    wrong.append(f"{name} and {other_name}")
    told = f"wrong for {', '.join(wrong)}" if wrong else "as live"
    return f"{told} ({judged} pairs differ live by more than their spread)"


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def main() -> int:
    """Make the certificates and write the page; return the exit code."""
    parser = argparse.ArgumentParser(description="Predictive certificates.")
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    parser.add_argument("--rows", nargs="+", choices=tuple(_ROWS), default=tuple(_ROWS))
    parser.add_argument("--seconds", type=float, default=40.0, help="of arrivals (40)")
    parser.add_argument("--simulations", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3, help="live runs of each case (3)")
    parser.add_argument("--loki", type=Path, default=LOKI, metavar="DATA_DIR")
    parser.add_argument("--ramsis", type=Path, default=RAMSIS, metavar="DATA_DIR")
    given = parser.parse_args()
    sizes = Sizes(seconds=given.seconds, simulations=given.simulations, repeats=given.repeats)
    found: list[tuple[str, Certificate]] = []
    for row in rows(given.rows, given.out, given.loki, given.ramsis):
        for name, certificate in certified(row, sizes):
            found.append((name, certificate))
            (given.out / "certificates.md").write_text(page(found), encoding="utf-8")
            print(f"{name}: {certificate.verdict}")
    short = shortfalls(found)
    print("\n".join(short) or "no metric is missed, no null model is better, orders are as live")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
