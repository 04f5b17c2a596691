"""Batches on a part of a CPU's time: each waits until its worker has paid for earlier ones.

The wait comes from our rule (headrace/roles/workers/device_time.py), not from the machine, so a
simulation plays it, and a calibration does not record it. What workers that share a process
(``tasks_per_device``) pay depends on each other, and answers do not show it: their wait is recorded
and replayed as a part of the batch.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import fmean, median
from typing import NamedTuple

from headrace.config.pipeline_file import PipelineFile
from headrace.roles.workers.device_time import DeviceTime
from streams.simulated.simulated_driver import BatchLatency


def own_rates(file: PipelineFile, devices: Mapping[str, str]) -> dict[str, float]:
    """Return, by worker, the CPU seconds per second by which it pays for its batches; workers that
    pay nothing, or share an account, are missing. ``devices`` has the device of each worker."""
    cluster = file.cluster
    if cluster.share >= 1.0 or cluster.tasks_per_device > 1 or cluster.tiers:
        return {}
    return {
        name: cluster.share for name, device in devices.items()
        if cluster.host_device(device) == "cpu"
    }  # fmt: skip


class PaidBatches:
    """A variant on a worker that pays for its batches: each begins once the account is even.

    ``now`` is the time at which a batch is asked for, in seconds; ``cpu_s`` is the most CPU time of
    a batch of a size: time beyond it is waiting for a core, which costs nothing.
    """

    def __init__(
        self,
        model: BatchLatency,
        account: DeviceTime,
        now: Callable[[], float],
        cpu_s: Callable[[int], float],
    ) -> None:
        self._model, self._account, self._now, self._cpu_s = model, account, now, cpu_s
        self.load_s, self.predict = model.load_s, model.predict

    def latency_s(self, batch: int) -> float:
        """Return the latency of a batch in seconds, with the wait before it."""
        now, runs_s = self._now(), self._model.latency_s(batch)
        waits_s = self._account.wait_s(0, now)
        self._account.begin(0, now + waits_s)
        self._account.end(0, min(runs_s, self._cpu_s(batch)), now + waits_s + runs_s)
        return waits_s + runs_s


CHARGED = tuple(at / 40 for at in range(40, 11, -1))  # of the usual stretch


class RecordedRun(NamedTuple):
    """A batch as its worker saw it, s; ``median_s`` is the profile's, the least that it ran."""

    worker: str
    started_s: float
    finished_s: float
    median_s: float


@dataclass(frozen=True, slots=True)
class Payments:
    """The wait of each batch, s, and the most that a batch is charged, in medians."""

    waits_s: list[float]
    charged: float


def payments(ran: Sequence[RecordedRun], rates: Mapping[str, float]) -> Payments:
    """Return the seconds that each batch waited before it ran; ``ran`` is by worker and time.

    A batch is charged its CPU time, which answers do not show. It is taken as the seconds that the
    batch ran, but no more than a multiple of its median. The multiple is chosen so that the run
    times of all batches, in medians, are closest to the usual one: the median over the batches that
    wait for nothing even if all seconds are charged.
    """
    if not any(each.worker in rates for each in ran):
        return Payments([0.0] * len(ran), inf)
    most = _waits_s(ran, rates, inf)
    free = [
        _stretch(each, 0.0)
        for each, wait_s in zip(ran, most, strict=True)
        if each.worker in rates and wait_s == 0.0 and each.median_s > 0
    ]
    if not free:
        return Payments(most, inf)
    usual = median(free)
    tried = [part * usual for part in CHARGED]
    found = [_waits_s(ran, rates, charged) for charged in tried]
    apart = [_apart(ran, rates, each, usual) for each in found]
    best = apart.index(min(apart))
    return Payments(found[best], tried[best])


def _apart(
    ran: Sequence[RecordedRun], rates: Mapping[str, float], waits_s: Sequence[float], usual: float
) -> float:
    """Return the mean distance of the batches from the usual stretch."""
    return fmean(
        abs(_stretch(each, wait_s) - usual)
        for each, wait_s in zip(ran, waits_s, strict=True)
        if each.worker in rates and each.median_s > 0
    )


def _stretch(run: RecordedRun, wait_s: float) -> float:
    return (run.finished_s - run.started_s - wait_s) / run.median_s


def _waits_s(ran: Iterable[RecordedRun], rates: Mapping[str, float], usual: float) -> list[float]:
    accounts: dict[str, DeviceTime] = {}
    found = []
    for worker, started_s, finished_s, median_s in ran:
        if worker not in rates:
            found.append(0.0)
            continue
        account = accounts.setdefault(worker, DeviceTime(1, rates[worker], started_s))
        longest_s = max(0.0, finished_s - started_s - median_s)
        wait_s = min(account.wait_s(0, started_s), longest_s)
        account.begin(0, started_s + wait_s)
        charged_s = min(finished_s - started_s - wait_s, usual * median_s if median_s else inf)
        account.end(0, charged_s, finished_s)
        found.append(wait_s)
    return found
