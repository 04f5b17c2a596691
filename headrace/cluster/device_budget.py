"""Check whether the pipelines on this machine reserve more of its devices than it has.

A worker on ``cpu`` reserves its pipeline's share of a core. On ``cuda:N`` a pipeline reserves its
share of the device for any number of workers, since profiles are measured with all of them busy;
each worker that divides a device has a part of that share. An emulated device reserves nothing.
"""

from collections.abc import Iterable, Sequence

from headrace.cluster.run_state import RunState
from profiles.measurements import EMULATED

_ROUNDING = 1e-9


def overbooked(mine: RunState, others: Iterable[RunState], cores: int) -> list[str]:
    """Return a sentence for each device of ``mine`` that all runs together reserve beyond its
    capacity; a device with one user is left out."""
    runs = (mine, *others)
    return [
        _sentence(device, users, cores)
        for device in mine.devices
        if device != EMULATED
        and len(users := [run for run in runs if device in run.devices]) > 1
        and sum(_wanted(run, device) for run in users) > _there(device, cores) + _ROUNDING
    ]


def outnumbered(mine: RunState, cores: int) -> list[str]:
    """Return a sentence if the CPU workers of one run reserve more cores than the machine has."""
    wanted = _wanted(mine, "cpu") if "cpu" in mine.devices else 0.0
    if wanted <= cores + _ROUNDING:
        return []
    return [
        f"the cpu workers need {wanted:g} cores and this machine has {cores}; profiles assume "
        "a core per worker, so plans overestimate capacity; lower cluster.devices or cluster.share"
    ]


def _wanted(run: RunState, device: str) -> float:
    """Return the cores, or the fraction of a device, that a run reserves."""
    return run.share * (run.devices[device] if device == "cpu" else run.tasks_per_device)


def _there(device: str, cores: int) -> int:
    return cores if device == "cpu" else 1


def _sentence(device: str, users: Sequence[RunState], cores: int) -> str:
    unit = "cores" if device == "cpu" else f"of {device}"
    total = sum(_wanted(run, device) for run in users)
    each = " and ".join(f"{run.pipeline} on {_wanted(run, device):g}" for run in users)
    there = f"{cores} cores" if device == "cpu" else f"one {device}"
    return (
        f"the pipelines on this machine need more than its {there}: {each}, {total:g} {unit} "
        f"in total; plans overestimate capacity; lower cluster.share or cluster.devices"
    )
