"""The calibration of a machine beside its pipeline file: ``pipeline.world.json``.

``headrace calibrate`` writes it; ``simulate``, ``compare``, ``plan`` and ``fidelity`` use it where
it fits: same machine, same tasks, variants, kinds of device and profiles, not older than
``VALID_DAYS``. Policy, SLO, load and number of devices may differ.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from math import inf, sqrt
from os.path import relpath
from pathlib import Path
from typing import Any

import numpy as np

from headrace.arrivals.arrival_processes import Arrivals, Times
from headrace.atomic_file import write_whole
from headrace.config.pipeline_file import PipelineFile
from headrace.errors import CalibrationError
from headrace.machine import machine
from headrace.machine_look import MachineLook
from headrace.results.figures import Figures
from headrace.simulation.paid_batches import own_rates
from profiles.measurements import EMULATED
from streams.simulated.delays import ANY_SIZE, Seen
from streams.simulated.world import Levels, Phase, World

SUFFIX = ".world.json"
FORMAT = 4
BUSIEST_S = 20.0  # a span of arrivals whose rate is judged
SURE = 3.0  # standard errors
VALID_DAYS = 7  # a machine and its other load change
NONE = "none"  # the option's value for built-in figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A world, the conditions it was measured under, and the figures of its phases.

    ``date`` is ISO 8601, UTC. ``host_cpu_share``: the busiest phase's busy fraction of all cores.
    ``figures``: of the queries of each phase, live. ``look``: at the machine just before; those
    of earlier releases have none.
    """

    world: World
    figures: tuple[Figures, ...]
    pipeline: str
    tasks_sha256: str
    profiles_sha256: Mapping[str, str]
    devices: Mapping[str, int]
    policy: str
    dilate: float
    date: str
    machine: str
    versions: Mapping[str, str]
    host_cpu_share: float | None
    look: MachineLook | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenWorld:
    """The world of a simulation, None for built-in figures, and a sentence that says which.

    ``named``: whether the user named it, rather than that it lay beside the file.
    """

    calibration: Calibration | None
    sentence: str
    path: Path | None = None
    sha256: str = ""
    named: bool = False

    @property
    def world(self) -> World | None:
        """The calibrated world; None: built-in figures."""
        return None if self.calibration is None else self.calibration.world


def world_path(file: Path) -> Path:
    """Return the path of a pipeline file's calibration."""
    return file.with_name(file.stem + SUFFIX)


def store(calibration: Calibration, path: Path) -> None:
    """Write the calibration atomically."""
    write_whole(path, json.dumps(as_json(calibration), separators=(",", ":")) + "\n")


def read(path: Path) -> Calibration:
    """Return a stored calibration; raises ``CalibrationError``."""
    try:
        return from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, CalibrationError):
            raise
        raise CalibrationError(
            f"the calibration {path} cannot be read ({error}); run `headrace calibrate` again"
        ) from error


def chosen_world(
    file: PipelineFile, option: str | None, now: datetime | None = None
) -> ChosenWorld:
    """Return the world of the option ``--world``: a path, "none", or None for the one beside the
    file if it fits.

    Raises ``CalibrationError`` for a path that cannot be read or was measured with other tasks,
    kinds of device or profiles. A named path may come from another machine or be old.
    """
    if option == NONE:
        return ChosenWorld(calibration=None, sentence="built-in figures for hops and batches")
    path = world_path(file.path) if option is None else Path(option)
    remedy = f"`headrace calibrate {file.path.name}` measures this machine"
    if option is None and not path.exists():
        sentence = f"built-in figures for hops and batches: {path.name} not found; {remedy}"
        return ChosenWorld(calibration=None, sentence=sentence)
    found = read(path)
    others, elsewhere = tuple(_others(found, file)), tuple(_elsewhere(found, now))
    if others and option is not None:
        raise CalibrationError(f"{path} does not fit: {'; '.join(others)}; {remedy}")
    if option is None and (others or elsewhere):
        why = "; ".join((*others, *elsewhere))
        sentence = (
            f"built-in figures for hops and batches: {path.name} does not apply: {why}; {remedy}"
        )
        return ChosenWorld(calibration=None, sentence=sentence)
    unused = "".join(f"; {each}" for each in elsewhere)
    return ChosenWorld(
        calibration=found, path=path, sha256=_sha256(path), named=option is not None,
        sentence=f"hops and batches from {path.name}, calibrated {found.date}{unused}",
    )  # fmt: skip


def _others(found: Calibration, file: PipelineFile) -> Iterator[str]:
    """Yield in what the calibrated pipeline differs."""
    if found.tasks_sha256 != tasks_sha256(file):
        yield "it was measured with other tasks, variants or kinds of device"
    if dict(found.profiles_sha256) != profiles_sha256(file):
        yield "it was measured with another profile"


def _elsewhere(found: Calibration, now: datetime | None) -> Iterator[str]:
    """Yield why the calibration may no longer hold here."""
    if found.machine != machine():
        yield f"it was measured on {found.machine}, and this is {machine()}"
    age = (now or datetime.now(UTC)) - datetime.fromisoformat(found.date)
    if age > timedelta(days=VALID_DAYS):
        yield f"it is {age.days} days old, and a calibration is valid for {VALID_DAYS}"


def beyond(world: World, rate_qps: float) -> str:
    """Return a sentence if a rate (queries per wall second) is outside the calibrated ones."""
    rates = world.rates_qps
    if rates[0] * 0.5 <= rate_qps <= rates[-1] * 1.1:
        return ""
    return (
        f"{rate_qps:.3g} queries/s is outside the calibrated rates ({rates[0]:.3g} to "
        f"{rates[-1]:.3g}); using the nearest rate"
    )


def beyond_of(world: World | None, arrivals: Iterable[Arrivals]) -> str:
    """Return sentences on the arrivals whose mean rate, or that of their busiest ``BUSIEST_S`` as
    far as it is sure, is outside the calibrated ones; "" without a calibration."""
    if world is None:
        return ""
    drawn = (each.drawn(np.random.default_rng(0)) for each in arrivals)
    told = {beyond(world, _judged_qps(times_s)): None for times_s in drawn}
    return "; ".join(filter(None, told))


def _judged_qps(times_s: Times) -> float:
    if not len(times_s) or times_s[-1] <= 0:
        return 0.0
    most = float(np.bincount((times_s / BUSIEST_S).astype(int)).max())
    busiest_qps = (most - SURE * sqrt(most)) / BUSIEST_S
    return max(busiest_qps, len(times_s) / float(times_s[-1]))


def tasks_sha256(file: PipelineFile) -> str:
    """Return the SHA-256 of the pipeline's name, tasks, variants and kinds of device."""
    tasks = [
        (task.name, task.children, [(each.name, each.operator) for each in task.variants])
        for task in file.pipeline.tasks
    ]
    kinds = sorted({file.cluster.host_device(device) for device, _ in file.cluster.devices})
    text = json.dumps([file.pipeline.name, tasks, kinds])
    return hashlib.sha256(text.encode()).hexdigest()


def profiles_sha256(file: PipelineFile) -> dict[str, str]:
    """Return the SHA-256 of each of the pipeline's profiles; "" for a missing one.

    The keys are those of ``named_profiles``.
    """
    named = named_profiles(file)
    return {name: _sha256(path) if path.is_file() else "" for name, path in named.items()}


def named_profiles(file: PipelineFile) -> dict[str, Path]:
    """Return the pipeline's profiles by file name; several of one name by their paths from the
    pipeline file."""
    times, here = Counter(path.name for path in file.profiles), file.path.parent
    return {
        path.name if times[path.name] == 1 else relpath(path, here): path for path in file.profiles
    }


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def stretches_by_kind(calibration: Calibration, file: PipelineFile) -> dict[str, float]:
    """Return, by kind of real device, the mean duration of batches over the planned one.

    Planned durations are the profile's at the pipeline's share of its devices, which includes a
    batch's wait until it is paid. A kind whose batches are not slower than planned is missing, as
    in the control app's own estimate.
    """
    values: dict[str, list[float]] = {kind: [] for kind in real_kinds(file)}
    for phase in calibration.world.phases:
        for (_, device, size), levels in phase.stretch.items():
            kind = file.cluster.host_device(device)
            if size == ANY_SIZE and kind in values:
                values[kind] += [value for seen in levels.values() for _, value in seen]
    paid = own_rates(file, {kind: kind for kind in values})
    shares = {kind: 1.0 if kind in paid else file.cluster.share for kind in values}
    means = {kind: float(np.mean(seen)) * shares[kind] for kind, seen in values.items() if seen}
    return {kind: mean for kind, mean in means.items() if mean > 1.0}


def real_kinds(file: PipelineFile) -> tuple[str, ...]:
    """Return the kinds of device of the cluster that are not emulated."""
    kinds = dict.fromkeys(file.cluster.host_device(device) for device, _ in file.cluster.devices)
    return tuple(kind for kind in kinds if kind != EMULATED)


# ---------------------------------------------------------------------- JSON


def as_json(found: Calibration) -> dict[str, Any]:
    """Return the calibration as stored JSON."""
    return {
        "format": FORMAT,
        "pipeline": found.pipeline,
        "date": found.date,
        "valid_days": VALID_DAYS,
        "machine": found.machine,
        "versions": dict(found.versions),
        "tasks_sha256": found.tasks_sha256,
        "profiles_sha256": dict(found.profiles_sha256),
        "devices": dict(found.devices),
        "policy": found.policy,
        "dilate": found.dilate,
        "host_cpu_share": found.host_cpu_share,
        "look": None if found.look is None else asdict(found.look),
        "broker": [list(knot) for knot in found.world.broker],
        "phases": [
            {**_phase(phase), "figures": _figures(figures)}
            for phase, figures in zip(found.world.phases, found.figures, strict=True)
        ],
    }


def from_json(value: Mapping[str, Any]) -> Calibration:
    """Return the calibration of ``as_json``.

    Raises ``CalibrationError``; ``KeyError``, ``TypeError`` or ``ValueError`` for a damaged one.
    """
    if value.get("format") != FORMAT:
        raise CalibrationError(
            f"a calibration has format {FORMAT}, and this has {value.get('format')!r}; run "
            "`headrace calibrate` again"
        )
    phases = tuple(_read_phase(each) for each in value["phases"])
    if not phases:
        raise CalibrationError("the calibration has no phase; run `headrace calibrate` again")
    if datetime.fromisoformat(value["date"]).tzinfo is None:
        raise ValueError(f"its date {value['date']} has no time zone")
    same = ("pipeline", "tasks_sha256", "profiles_sha256", "devices", "policy", "dilate", "date",
            "machine", "versions", "host_cpu_share")  # fmt: skip
    profiles = dict(value["profiles_sha256"])
    return Calibration(
        world=World(phases, tuple((share, seconds) for share, seconds in value["broker"])),
        figures=tuple(Figures(**each["figures"]) for each in value["phases"]),
        look=MachineLook(**look) if (look := value.get("look")) else None,
        **{name: value[name] for name in same} | {"profiles_sha256": profiles},
    )


_FIGURES = (
    "queries", "p50_ms", "p95_ms", "p99_ms", "branch_violation", "violation", "accuracy",
    "devices_mean",
)  # fmt: skip


def _figures(figures: Figures) -> dict[str, Any]:
    return {name: getattr(figures, name) for name in _FIGURES}


def _phase(phase: Phase) -> dict[str, Any]:
    return {
        "rate_qps": phase.rate_qps,
        "seconds": phase.seconds,
        "lag_s": phase.lag_s,
        "charged": {
            task: {
                str(level): None if most == inf else round(most, 4)
                for level, most in levels.items()
            }
            for task, levels in phase.charged.items()
        },
        "hops": _levels(phase.hops),
        "ways_in": _levels(phase.ways_in),
        "ways_out": _levels(phase.ways_out),
        "starts": {task: _levels(levels) for task, levels in phase.starts.items()},
        "stretch": [
            {"task": task, "device": device, "batch": size, "busy": _levels(levels)}
            for (task, device, size), levels in phase.stretch.items()
        ],
    }


def _read_phase(value: Mapping[str, Any]) -> Phase:
    if not value["seconds"] > 0:
        raise ValueError(f"a phase lasts {value['seconds']} s")
    return Phase(
        rate_qps=value["rate_qps"],
        seconds=value["seconds"],
        lag_s=value["lag_s"],
        charged={task: _read_charged(levels) for task, levels in value["charged"].items()},
        hops=_read_levels(value["hops"]),
        ways_in=_read_levels(value["ways_in"]),
        ways_out=_read_levels(value["ways_out"]),
        starts={task: _read_levels(levels) for task, levels in value["starts"].items()},
        stretch={
            (each["task"], each["device"], each["batch"]): _read_levels(each["busy"])
            for each in value["stretch"]
        },
    )


def _read_charged(value: Mapping[str, float | None] | float | None) -> dict[int, float]:
    """Return what batches are charged by level; earlier releases have one value for all."""
    levels = value if isinstance(value, Mapping) else {"0": value}
    return {int(level): inf if most is None else float(most) for level, most in levels.items()}


def _levels(levels: Levels) -> dict[str, Any]:
    return {str(level): _columns(seen) for level, seen in levels.items()}


def _columns(seen: Seen) -> dict[str, list[float]]:
    return {"at_s": [round(at, 4) for at, _ in seen], "value": [round(v, 6) for _, v in seen]}


def _read_levels(value: Mapping[str, Any]) -> dict[int, Seen]:
    return {
        int(level): tuple(zip(map(float, each["at_s"]), map(float, each["value"]), strict=True))
        for level, each in value.items()
        if each["at_s"]
    }
