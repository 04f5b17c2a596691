"""Actions of commands: the settings that result from a command, or the reason to refuse it."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from math import isfinite

from msgspec.structs import replace

from control.controller.command_queue import COMMAND_VALID_S
from control.policies import known_kinds, policy_named
from control.problem.problem import PlanError
from schemas.durations import duration
from schemas.pipeline import MOST_DEADLINE_S, Pipeline
from schemas.records import Command, Plan, Settings
from schemas.variant_id import variant_id

EPOCH_DIGITS = 18  # of the largest epoch; Python refuses to read numbers of thousands of digits


class CommandError(ValueError):
    """A command that cannot be carried out; the message is the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The state that a command applies to. ``devices`` maps live workers to their devices,
    ``neighbours`` are the other active pipelines on the broker, ``types`` the rented device
    types."""

    pipeline: Pipeline
    settings: Settings
    devices: Mapping[str, str]
    plans: Mapping[int, Plan]  # by epoch
    neighbours: tuple[str, ...] = ()
    types: tuple[str, ...] = ()  # of rented devices
    others: Collection[str] = ()  # actions that are carried out elsewhere


Change = tuple[Settings, str]  # and a sentence that describes the change
Action = Callable[[Situation, str], Change]


def carry_out(command: Command, situation: Situation) -> Change:
    """Return the settings after the command; raise ``CommandError``."""
    if not command.pipeline and situation.neighbours:
        names = sorted((situation.pipeline.name, *situation.neighbours))
        raise CommandError(
            f"the command names no pipeline, and {' and '.join(names)} are up on this broker; "
            'name one as "pipeline"'
        )
    if command.action not in ACTIONS:
        raise CommandError(_unknown("action", command.action, {*ACTIONS, *situation.others}))
    argument, action = ACTIONS[command.action]
    for name in sorted(command.arguments):
        if name != argument:
            takes = f"it takes {argument!r}" if argument else "it takes none"
            raise CommandError(f"{command.action} has no argument {name!r}; {takes}")
    if argument and argument not in command.arguments:
        raise CommandError(f"{command.action} needs the argument {argument!r}; give it")
    return action(situation, command.arguments.get(argument, ""))


def done_before(command: Command, plans: Iterable[Plan]) -> str:
    """Return the message for a command that an earlier control app carried out by one of the plans,
    and ended before it could write the result; "" if none did. Ids may repeat, but not as long as a
    command is valid."""
    for plan in plans:
        apart_s = abs(plan.issued_s - command.issued_s)
        if plan.command == command.id and apart_s <= COMMAND_VALID_S:
            return f"carried out by plan {plan.epoch}, before the control app restarted"
    return ""


def unexpired(command: Command, now: float) -> None:
    """Raise ``CommandError`` if the command's sender no longer waits for a result."""
    waited_s = now - command.issued_s
    if waited_s > COMMAND_VALID_S:
        raise CommandError(
            f"the command waited {waited_s:.0f} s for the control app and is valid for "
            f"{COMMAND_VALID_S:g} s; give it again"
        )


def _apply_policy(situation: Situation, name: str) -> Change:
    _known_policy(situation.pipeline, name)
    return replace(situation.settings, policy=name), f"policy {name!r} is in force"


def _set_slo(situation: Situation, text: str) -> Change:
    return replace(situation.settings, slo_s=slo_of(text)), f"the SLO is {text.strip()}"


def slo_of(text: str) -> float:
    """Return the SLO that a command's argument gives, in seconds; raise ``CommandError``."""
    said = text.strip()
    try:
        slo_s = duration(said)
    except ValueError as error:
        raise CommandError(str(error).replace("{}", "the SLO", 1)) from error
    if not 0 < slo_s < float("inf"):
        raise CommandError(f"the SLO is {said}; it must be above 0")
    if slo_s > MOST_DEADLINE_S:
        raise CommandError(
            f"the SLO is {said}; work is kept for ten minutes, so {MOST_DEADLINE_S:g}s at most"
        )
    return slo_s


def _set_demand(situation: Situation, text: str) -> Change:
    try:
        demand = float(text)
    except ValueError:
        demand = -1.0
    if not (isfinite(demand) and demand >= 0):
        raise CommandError(f"{text!r} is no demand; write queries per second, 0 or above")
    return replace(situation.settings, demand_qps=demand), f"planning for {demand:g} queries/s"


def _release_demand(situation: Situation, _: str) -> Change:
    return replace(situation.settings, demand_qps=None), "planning for the measured demand"


def _drain(situation: Situation, target: str) -> Change:
    drained = situation.settings.drained
    known = {*situation.devices, *situation.devices.values(), *drained}
    if target not in known:
        raise CommandError(_unknown("worker or device", target, known))
    settings = replace(situation.settings, drained=tuple(sorted({*drained, target})))
    return settings, f"{target!r} gets no new work and drains"


def _restore(situation: Situation, target: str) -> Change:
    drained = situation.settings.drained
    if target not in drained:
        raise CommandError(_unknown("drained worker or device", target, drained))
    left = tuple(name for name in drained if name != target)
    return replace(situation.settings, drained=left), f"{target!r} gets new work again"


def _pause(situation: Situation, _: str) -> Change:
    return replace(situation.settings, paused=True), "ingress refuses queries"


def _resume(situation: Situation, _: str) -> Change:
    return replace(situation.settings, paused=False), "ingress admits queries"


def _replan(situation: Situation, _: str) -> Change:
    return situation.settings, "replanned"


def _reload(situation: Situation, target: str) -> Change:
    """Increment the build of a variant ("task/variant"), of a task's variants, or of "all"."""
    tasks = situation.pipeline.task_names
    keys = [v.key for task in situation.pipeline.tasks for v in task.variants]
    chosen = [key for key in keys if target in ("all", key, variant_id(key).task)]
    if not chosen:
        raise CommandError(_unknown("variant or task", target, {*keys, *tasks, "all"}))
    before = situation.settings.reloads
    number = max(before.values(), default=0) + 1
    settings = replace(situation.settings, reloads={**before, **dict.fromkeys(chosen, number)})
    return settings, f"workers reload {', '.join(chosen)}"


def _set_price(situation: Situation, text: str) -> Change:
    _rents(situation)
    name, _, price = text.partition("=")
    if name not in situation.types:
        raise CommandError(_unknown("type", name, situation.types))
    prices = {**situation.settings.prices, name: _dollars(price)}
    return replace(situation.settings, prices=prices), f"{name} costs {prices[name]:g} $/h"


def _set_budget(situation: Situation, text: str) -> Change:
    _rents(situation)
    budget = _dollars(text)
    return replace(situation.settings, budget=budget), f"the budget is {budget:g} $/h"


def _rents(situation: Situation) -> None:
    if not situation.types:
        raise CommandError("no devices are rented while the pipeline runs; set cluster.scale")


def _dollars(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not (isfinite(found) and found > 0):
        raise CommandError(f"{text!r} is no price; write $ per hour above 0")
    return found


def _rollback(situation: Situation, text: str) -> Change:
    plans = situation.plans
    plan = plans.get(_epoch(text, -1))
    if plan is None:
        raise CommandError(_unknown_epoch(text, plans))
    _known_policy(situation.pipeline, plan.settings.policy)
    now = situation.settings
    back = replace(
        plan.settings, filed_policy=now.filed_policy, filed_slo_s=now.filed_slo_s,
        reloads=now.reloads,
    )  # fmt: skip
    return back, f"the settings of plan {plan.epoch} are in force"


def _epoch(text: str, otherwise: int) -> int:
    """Return the epoch in a text; ``otherwise`` if it is none."""
    digits = text.strip()
    return int(digits) if digits.isdecimal() and len(digits) <= EPOCH_DIGITS else otherwise


def _unknown_epoch(text: str, plans: Iterable[int]) -> str:
    known = sorted(plans)
    if not known:
        return f"there is no plan {text!r}, and none yet at all"
    wanted = _epoch(text, known[-1])
    nearest = min(known, key=lambda epoch: abs(epoch - wanted))
    return f"there is no plan {text!r}; the nearest one known is {nearest}"


def _known_policy(pipeline: Pipeline, name: str) -> None:
    try:
        found = policy_named(pipeline, name)
    except PlanError as error:  # of another package that cannot be loaded
        raise CommandError(str(error)) from error
    if found is None:
        known = {*known_kinds(), *(policy.name for policy in pipeline.policies)}
        raise CommandError(_unknown("policy", name, known))


_MOST_NAMED = 20  # all actions


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Return a sentence with the nearest valid name, or with the known names."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    if near:
        return f"no {what} {name!r}; did you mean {near[0]!r}?"
    shown = ", ".join(names[:_MOST_NAMED]) + (" ..." if len(names) > _MOST_NAMED else "")
    return f"no {what} {name!r}; " + (f"there are: {shown}" if names else "there is none")


# action -> (its argument, "" for none; its function)
ACTIONS: Mapping[str, tuple[str, Action]] = {
    "apply-policy": ("policy", _apply_policy),
    "set-slo": ("slo", _set_slo),
    "set-demand": ("qps", _set_demand),
    "set-price": ("price", _set_price),
    "set-budget": ("budget", _set_budget),
    "release-demand": ("", _release_demand),
    "drain": ("target", _drain),
    "restore": ("target", _restore),
    "pause": ("", _pause),
    "resume": ("", _resume),
    "replan": ("", _replan),
    "rollback": ("epoch", _rollback),
    "reload": ("variant", _reload),
}
PAUSES = frozenset(("pause", "resume"))  # actions that change admission, and no worker
