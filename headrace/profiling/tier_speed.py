"""``headrace tier-speed``: measure the speed of a tier's device against that of the profilers.

A search divides the profiled seconds of an operator by the speed of its tier (Compass, Appendix D.2
has about 5 % error with simulators). This module runs one configuration after the other, until
every variant has run, on the samples and in the batches of the profiles:

    speed = seconds in the profiles / seconds here     (sums over operators: latencies add up)

Operators on processors (``cpu: true``) have a speed of their own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from control.policies.compass.search.camo import Profiled, Proposal
from control.policies.compass.search.configuration_run import ProfileGoal
from control.policies.compass.search.prefix_cache import PrefixCache
from control.policies.compass.search.sequential_test import StopRule
from control.problem.sample_sets import Truth
from control.problem.session_space import VARIANT, SessionSpace
from control.problem.space import Space
from headrace.config.cluster import TierDevices
from headrace.config.pipeline_file import PipelineFile, search_space
from headrace.config.user_functions import load_combine, load_workload
from headrace.errors import PipelineError, Unsuccessful
from headrace.planning.session_search import ProfileSource
from headrace.profiling.device_check import check_devices
from headrace.roles.input_topic.recent_inputs import RecentInputs
from headrace.roles.profiling.loaded_operators import Operators
from headrace.roles.profiling.samples import Samples
from operators.calls.user_frames import error_sentence
from operators.join import as_list
from operators.profiler import Profiler, Sample
from schemas.records import Value

WARM = 3  # samples that run first and do not count
PROFILED_WITHIN_S = 600.0


@dataclass(frozen=True, slots=True)
class OperatorSpeed:
    """Mean seconds of a sample in one setting: in the profile, and on the tier's device. ``cpu``:
    of a task on processors."""

    setting: str
    cpu: bool
    profiled_s: float
    here_s: float

    @property
    def speed(self) -> float:
        """The speed by this operator alone; infinite if it took no time here."""
        return self.profiled_s / self.here_s if self.here_s else float("inf")


@dataclass(frozen=True, slots=True)
class TierSpeed:
    """The operators of a tier, measured on ``device`` over ``samples`` samples each."""

    tier: str
    device: str
    samples: int
    operators: tuple[OperatorSpeed, ...]

    @property
    def speed(self) -> float | None:
        """The tier's ``speed``; None: no operator needs it."""
        return _speed(each for each in self.operators if not each.cpu)

    @property
    def cpu_speed(self) -> float | None:
        """The tier's ``cpu_speed``; None: no operator needs it."""
        return _speed(each for each in self.operators if each.cpu)

    def error(self, operator: OperatorSpeed) -> float:
        """Return the relative error of an operator's seconds by the tier's one speed."""
        of_tier = self.cpu_speed if operator.cpu else self.speed
        return operator.speed / of_tier - 1.0 if of_tier else 0.0


def _speed(operators: Iterable[OperatorSpeed]) -> float | None:
    found = list(operators)
    here_s = sum(each.here_s for each in found)
    return sum(each.profiled_s for each in found) / here_s if here_s else None


def tier_speed(
    file: PipelineFile, tier: str, source: ProfileSource, sample_set: str, samples: int
) -> TierSpeed:
    """Measure a tier on this machine. ``source`` has the profiles of ``sample_set``.

    Raises ``PipelineError`` for a tier that is not there, is emulated or has a device that this
    machine lacks, and for a file without a workload; ``Unsuccessful`` if an operator fails or no
    profiler answers.
    """
    sessions, here = search_space(file), real_tier(file, tier)
    if sessions.truth is Truth.FEEDBACK:
        raise PipelineError(
            "the samples of profiling.truth: feedback change, so no two machines run the same "
            "ones; name a workload, and another truth"
        )
    drawn = Samples(load_workload(file), _no_inputs).of(sample_set, 0, samples) or []
    run = _Here(file, sessions, here.device)
    found: dict[str, OperatorSpeed] = {}
    for c in covering(sessions.space):
        own = run.seconds(c, sample_set, drawn)
        profiled = _profiled(source, sessions.space, c, samples)
        for stage, described in enumerate(sessions.space.stages):
            setting = sessions.setting(described.name, c)
            if described.name in here.tasks and setting not in found:
                found[setting] = OperatorSpeed(
                    setting, described.cpu, profiled.seconds[stage], own[stage]
                )
    return TierSpeed(tier, here.device, len(drawn), tuple(found.values()))


def real_tier(file: PipelineFile, name: str) -> TierDevices:
    """Return a tier whose device this machine has; raise ``PipelineError``."""
    tier = file.cluster.tier(name)
    if tier is None:
        known = ", ".join(each.name for each in file.cluster.tiers)
        raise PipelineError(f"{file.path} has no tier {name!r}; tiers are {known or 'none'}")
    if tier.emulated:
        raise PipelineError(
            f"the tier {name!r} is emulated, so its speed is what the file says; give it a real "
            "device, as in device: cpu, and run this command on a machine of the tier"
        )
    check_devices(file.cluster, [name])
    return tier


def covering(space: Space) -> list[int]:
    """Return configurations that together have every variant, with the first option of the other
    knobs."""
    most = max((len(knob.options) for knob in space.knobs if knob.name == VARIANT), default=1)
    return [
        at
        for number in range(most)
        if (at := space.index_of({
            f"{knob.stage}.{knob.name}": knob.options[
                min(number, len(knob.options) - 1) if knob.name == VARIANT else 0
            ]
            for knob in space.knobs
        })) is not None
    ]  # fmt: skip


class _Here:
    """The configurations of a file on a device of this machine, timed as profilers time them."""

    def __init__(self, file: PipelineFile, sessions: SessionSpace, device: str) -> None:
        self._sessions = sessions
        self._operators = Operators(file, sessions, device)
        self._profiler = Profiler(
            file.pipeline, sessions.space, PrefixCache(sessions.cache_bytes),
            load_combine(file.pipeline) or as_list, _unjudged,
        )  # fmt: skip

    def seconds(self, c: int, sample_set: str, samples: Sequence[Sample]) -> list[float]:
        """Return the mean seconds of each stage in a configuration."""
        self._profiler.profile(c, "warm-up", samples[:WARM], self._run)
        found = self._profiler.profile(c, sample_set, samples, self._run)
        return [cost.seconds / max(len(samples), 1) for cost in found.stages]

    def _run(self, stage: int, c: int, values: Sequence[Value]) -> tuple[Sequence[Any], float]:
        """Run an operator; raise ``Unsuccessful`` if it fails on a value: the time of a failure is
        none of an answer."""
        task = self._sessions.space.stages[stage].name
        try:
            outputs, seconds = self._operators.run(stage, c, values)
            for each in outputs:
                if isinstance(each, Exception):
                    raise each
        except (Exception, SystemExit) as error:
            setting = self._sessions.setting(task, c)
            raise Unsuccessful(f"{setting} fails here: {error_sentence(error)}") from error
        return outputs, seconds


def _profiled(source: ProfileSource, space: Space, c: int, samples: int) -> Profiled:
    wanted = Proposal(configuration=c, placement=0, utility=0.0, origin="own", samples=samples)
    goal = ProfileGoal(space, 0.0, StopRule(least=samples, most=samples), lambda _: True)
    answered = source.profile(wanted, goal, PROFILED_WITHIN_S)
    if answered is None:
        raise Unsuccessful(
            f"no profiler has answered within {PROFILED_WITHIN_S:g} s; see `headrace logs`"
        )
    step, profiled = answered
    if profiled is None:
        raise Unsuccessful(f"{space.named(c)} does not run on the profilers: {step.error}")
    if profiled.tested.estimate.mean == 0.0:
        raise Unsuccessful(
            f"{space.named(c)} has no right answer in its profile, so its operators may have "
            "failed there; see the profilers' log"
        )
    return profiled


def _no_inputs(_: object) -> RecentInputs:
    raise PipelineError("the samples of a tier's speed are the workload's")


def _unjudged(_result: object, _truth: object) -> tuple[int, int]:
    """Judge nothing: only seconds count."""
    return 1, 1


# ---------------------------------------------------------------------- as printed


def as_json(found: TierSpeed) -> dict[str, Any]:
    """Return the object that ``headrace tier-speed --json`` prints."""
    return {
        "tier": found.tier,
        "device": found.device,
        "samples": found.samples,
        "speed": found.speed,
        "cpu_speed": found.cpu_speed,
        "operators": [
            {
                "setting": each.setting,
                "cpu": each.cpu,
                "profiled_ms": 1e3 * each.profiled_s,
                "here_ms": 1e3 * each.here_s,
                "error": found.error(each),
            }
            for each in found.operators
        ],
    }


def as_text(found: TierSpeed) -> str:
    """Return the operators, and the lines to write into the file."""
    lines = [f"tier {found.tier} on {found.device}, {found.samples} samples"]
    lines += [
        f"  {each.setting}: {1e3 * each.profiled_s:.3g} ms in the profile, "
        f"{1e3 * each.here_s:.3g} ms here; by the tier's speed {100 * found.error(each):+.0f} %"
        for each in found.operators
    ]
    speeds = {"speed": found.speed, "cpu_speed": found.cpu_speed}
    told = ", ".join(f"{key}: {value:.3g}" for key, value in speeds.items() if value is not None)
    return "\n".join([*lines, f"write under cluster.tiers.{found.tier}: {told or 'nothing'}"])
