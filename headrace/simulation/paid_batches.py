"""Batches on a part of a CPU's time: each waits until its worker has paid for earlier ones.

The wait comes from our rule (headrace/roles/workers/device_time.py), not from the machine, so a
simulation plays it, and a calibration does not record it (headrace/fidelity/payments.py). What
workers that share a process (``tasks_per_device``) pay depends on each other, and answers do not
show it: their wait is recorded and replayed as a part of the batch.
"""

from collections.abc import Callable, Mapping

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
