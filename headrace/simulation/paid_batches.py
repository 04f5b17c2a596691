"""Batches on a part of a CPU's time: each waits until its worker has paid for earlier ones.

The wait is no effect of the machine but a rule of ours (headrace/roles/workers/device_time.py), so
a simulation plays it, and a calibration leaves it out of what it records of batches. Workers that
share a process (``tasks_per_device``) pay by what the others do, which no answer tells: theirs is
recorded and replayed as a part of the batch.
"""

from collections.abc import Callable, Iterable, Mapping

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

    ``now`` is the time at which a batch is asked for, in seconds.
    """

    def __init__(self, model: BatchLatency, account: DeviceTime, now: Callable[[], float]) -> None:
        self._model, self._account, self._now = model, account, now
        self.load_s, self.predict = model.load_s, model.predict

    def latency_s(self, batch: int) -> float:
        """Return the latency of a batch in seconds, with the wait before it."""
        now, runs_s = self._now(), self._model.latency_s(batch)
        waits_s = self._account.wait_s(0, now)
        self._account.begin(0, now + waits_s)
        self._account.end(0, runs_s, now + waits_s + runs_s)
        return waits_s + runs_s


def waits_s(
    ran: Iterable[tuple[str, float, float, float]], rates: Mapping[str, float]
) -> list[float]:
    """Return the seconds that each batch waited before it ran, at most all but ``least_s`` of it.

    ``ran``: (worker, started, finished, least_s) of every batch, each worker's in order of time;
    ``least_s`` is the least that a batch can have run. A batch is charged the seconds that it ran.
    """
    accounts: dict[str, DeviceTime] = {}
    found = []
    for worker, started_s, finished_s, least_s in ran:
        if worker not in rates:
            found.append(0.0)
            continue
        account = accounts.setdefault(worker, DeviceTime(1, rates[worker], started_s))
        longest_s = max(0.0, finished_s - started_s - least_s)
        wait_s = min(account.wait_s(0, started_s), longest_s)
        account.begin(0, started_s + wait_s)
        account.end(0, finished_s - started_s - wait_s, finished_s)
        found.append(wait_s)
    return found
