"""Sweeps: the same simulation at several rates, numbers of devices and SLOs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from headrace.config.pipeline_file import PipelineFile
from headrace.simulation.batch_runs import Row, SimulationRequest, distinct, of_all, runs
from headrace.simulation.run_input import Run

Label = Mapping[str, Any]  # the swept values: rate_qps, cluster_devices, slo_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The values to combine; an empty list leaves what the request says."""

    rates_qps: Sequence[float] = ()
    devices: Sequence[int | Mapping[str, int]] = ()
    slos_s: Sequence[float] = ()


def points(asked: SimulationRequest, sweep: Sweep) -> list[tuple[Label, SimulationRequest]]:
    """Return a request for every combination, each with its label: the values that vary.

    Raises ``click.UsageError`` for a value that is given twice.
    """
    rates = distinct("rate", sweep.rates_qps) or (asked.rate_qps,)
    devices = distinct("devices", sweep.devices) or (asked.devices,)
    slos = distinct("SLO", sweep.slos_s) or (asked.slo_s,)
    found: list[tuple[Label, SimulationRequest]] = []
    for rate, count, slo in product(rates, devices, slos):
        label: dict[str, Any] = {}
        if len(rates) > 1:
            label["rate_qps"] = rate
        if len(devices) > 1:
            label["cluster_devices"] = devices_text(count)
        if len(slos) > 1:
            label["slo_ms"] = round(slo * 1e3, 6)
        found.append((label, replace(asked, rate_qps=rate, devices=count, slo_s=slo)))
    return found


def swept(
    file: PipelineFile, asked: SimulationRequest, sweep: Sweep
) -> tuple[list[Label], list[Run]]:
    """Return the runs of all points, in order, and the label of each; raises as ``runs`` does."""
    labels: list[Label] = []
    found: list[Run] = []
    for label, request in points(asked, sweep):
        more = runs(file, request)
        labels += [label] * len(more)
        found += more
    return labels, found


def labelled(labels: Sequence[Label], rows: Sequence[Row]) -> list[Row]:
    """Return the rows, one per run, with their labels in front."""
    return of_all(labels, [[row] for row in rows])


def label_text(label: Label) -> str:
    """Return a label as words: "200 queries/s, 4 devices, SLO 100 ms"."""
    words = {"rate_qps": "{:g} queries/s", "cluster_devices": "{} devices", "slo_ms": "SLO {:g} ms"}
    return ", ".join(words[name].format(value) for name, value in label.items())


def devices_text(devices: int | Mapping[str, int]) -> int | str:
    """Return devices as ``--devices`` takes them: a number, or numbers by kind."""
    if isinstance(devices, int):
        return devices
    return ",".join(f"{name}={count}" for name, count in devices.items())
