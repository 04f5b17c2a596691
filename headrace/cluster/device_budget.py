"""Do the pipelines that are up on this machine count on more of its devices than there is?

A worker on ``cpu`` counts on its pipeline's share of a core. On ``cuda:N`` a pipeline counts on its
share of the device however many workers it has there, since profiles are measured with all of them
busy. An emulated device only waits and is nobody else's.
"""

from collections.abc import Iterable, Sequence

from headrace.cluster.run_state import RunState
from profiles.profile_table import EMULATED

_ROUNDING = 1e-9


def overbooked(mine: RunState, others: Iterable[RunState], cores: int) -> list[str]:
    """A sentence for each device of ``mine`` on which all runs together count on more than there
    is; none for what one run alone asks for."""
    runs = (mine, *others)
    return [
        _sentence(device, users, cores)
        for device in mine.devices
        if device != EMULATED
        and len(users := [run for run in runs if device in run.devices]) > 1
        and sum(_wanted(run, device) for run in users) > _there(device, cores) + _ROUNDING
    ]


def outnumbered(mine: RunState, cores: int) -> list[str]:
    """A sentence where the CPU workers of one run count on more cores than there are."""
    wanted = _wanted(mine, "cpu") if "cpu" in mine.devices else 0.0
    if wanted <= cores + _ROUNDING:
        return []
    return [
        f"{mine.devices['cpu']} workers on cpu count on {wanted:g} cores and this machine has "
        f"{cores}; capacity was profiled with a core each, so plans promise more than it can "
        "serve: lower cluster.devices or cluster.share"
    ]


def _wanted(run: RunState, device: str) -> float:
    """Cores, or devices."""
    return run.share * (run.devices[device] if device == "cpu" else 1)


def _there(device: str, cores: int) -> int:
    return cores if device == "cpu" else 1


def _sentence(device: str, users: Sequence[RunState], cores: int) -> str:
    unit = "cores" if device == "cpu" else f"of {device}"
    total = sum(_wanted(run, device) for run in users)
    each = " and ".join(f"{run.pipeline} on {_wanted(run, device):g}" for run in users)
    there = f"{cores} cores" if device == "cpu" else f"one {device}"
    return (
        f"the pipelines on this machine count on more than its {there}: {each}, {total:g} {unit} "
        f"together; lower cluster.share or cluster.devices, or plans promise what cannot be kept"
    )
