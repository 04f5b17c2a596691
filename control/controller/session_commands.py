"""Commands on sessions, checked against the pipeline's tiers and knobs.

``open-session`` takes ``session`` (its id) and, as texts, ``slo``, ``accuracy``, ``cost``,
``weight``, ``samples``, ``plan``; ``close-session`` and ``replan-session`` take ``session``;
``set-session-slo`` takes ``session`` and any of ``slo``, ``accuracy``, ``cost``. A plan made by
hand is JSON, as the papers' API has it:

    {"stages": [["scan", "handheld"], ["read", "cloud"]],
     "config": {"scan.scale": 0.5, "read.variant": "mlp"}, "shares": {"read": 0.25}}
"""

import json
from collections import Counter
from collections.abc import Mapping
from difflib import get_close_matches
from math import isfinite
from typing import Any

from msgspec.structs import replace

from control.controller.commands import CommandError, slo_of
from control.problem.sample_sets import WORKLOAD, Truth, first_set
from control.problem.seats import SESSION_ID
from control.problem.session_space import MOST_WEIGHT, SessionSpace, option_name
from control.problem.tiers import QUARTERS
from schemas.enumerations import SessionState
from schemas.pipeline import Pipeline
from schemas.records import Session, SessionChoice
from schemas.unique_keys import unique_keys

OPEN, CLOSE, REPLAN = "open-session", "close-session", "replan-session"
SET_SLO = "set-session-slo"
SEED_DIGITS = 18  # of a workload's seed
SESSION_ACTIONS = frozenset((OPEN, CLOSE, REPLAN, SET_SLO))
ARGUMENTS: Mapping[str, frozenset[str]] = {
    OPEN: frozenset(("session", "slo", "accuracy", "cost", "weight", "samples", "plan")),
    CLOSE: frozenset(("session",)),
    REPLAN: frozenset(("session",)),
    SET_SLO: frozenset(("session", "slo", "accuracy", "cost")),
}


def named_session(action: str, arguments: Mapping[str, str]) -> str:
    """Return the id of the session that a command names; raise ``CommandError``."""
    for name in sorted(set(arguments) - ARGUMENTS[action]):
        known = ", ".join(sorted(ARGUMENTS[action]))
        raise CommandError(f"{action} has no argument {name!r}; it takes {known}")
    session = arguments.get("session", "")
    if not SESSION_ID.fullmatch(session):
        raise CommandError(
            f"{session!r} is no id of a session; write up to 64 letters, digits, '.', '_' or '-', "
            "as in session=cam-17"
        )
    return session


def asked_session(
    arguments: Mapping[str, str], pipeline: Pipeline, space: SessionSpace, now: float
) -> Session:
    """Return the session that ``open-session`` requests; raise ``CommandError``.

    Missing arguments take the values of the pipeline file.
    """
    plan = arguments.get("plan", "")
    return Session(
        id=arguments["session"],
        pipeline=pipeline.name,
        state=SessionState.OPENING,
        slo_s=_slo_s(arguments, space.latency_s),
        accuracy=_number(arguments, "accuracy", space.accuracy, most=1.0),
        usd_per_h=_number(arguments, "cost", space.usd_per_h),
        weight=_weight(arguments, space.weight),
        samples="" if plan else arguments.get("samples", first_set(space.truth, now)),
        plans=(hand_made(plan, space),) if plan else (),
    )


def check_search(asked: Session, space: SessionSpace, now: float) -> None:
    """Raise ``CommandError`` if no plan of a session can be searched."""
    if not space.profilers:
        raise CommandError(
            "no plan can be searched: the pipeline file names no workload, whose samples "
            "profilers run; add one, or profiling: {truth: feedback} for labelled inputs, or "
            "give a plan made by hand: --plan FILE"
        )
    if asked.accuracy is None:
        raise CommandError(
            "the session names no accuracy to search for, nor does the pipeline file; give "
            "--accuracy 0.9, or a plan made by hand: --plan FILE"
        )
    if space.truth is Truth.FEEDBACK:
        if asked.samples != first_set(space.truth, now):
            raise CommandError(
                f"no sample set {asked.samples!r}: profiling.truth is feedback, so profiles "
                "are of labelled inputs; leave --samples out"
            )
        return
    seed = asked.samples.removeprefix(WORKLOAD)
    numbered = seed.isdecimal() and len(seed) <= SEED_DIGITS
    if seed == asked.samples or not numbered:
        raise CommandError(f"no sample set {asked.samples!r}; name one as workload@7")


def with_objectives(session: Session, arguments: Mapping[str, str]) -> Session:
    """Return a session with the objectives that ``set-session-slo`` names; raise ``CommandError``
    if it names none."""
    if not set(arguments) - {"session"}:
        raise CommandError(
            f"{SET_SLO} names no objective of session {session.id!r}; give slo=200ms, accuracy=0.9 "
            "or cost=0.1"
        )
    return replace(
        session,
        slo_s=_slo_s(arguments, session.slo_s),
        accuracy=_number(arguments, "accuracy", session.accuracy, most=1.0),
        usd_per_h=_number(arguments, "cost", session.usd_per_h),
    )


def _slo_s(arguments: Mapping[str, str], usual_s: float) -> float:
    return slo_of(arguments["slo"]) if "slo" in arguments else usual_s


def _number(
    arguments: Mapping[str, str], name: str, usual: float | None, most: float = float("inf")
) -> float | None:
    if name not in arguments:
        return usual
    try:
        value = float(arguments[name])
    except ValueError:
        value = -1.0
    if not (isfinite(value) and 0 <= value <= most):
        upto = f" to {most:g}" if isfinite(most) else " or more"
        raise CommandError(f"{name} is {arguments[name]!r}; write a number from 0{upto}")
    return value


def _weight(arguments: Mapping[str, str], usual: float) -> float:
    weight = _number(arguments, "weight", usual, most=MOST_WEIGHT)
    if not weight:
        raise CommandError(f"weight is {arguments['weight']!r}; it must be above 0")
    return weight


# --- plans made by hand -------------------------------------------------------------------------


def hand_made(text: str, space: SessionSpace) -> SessionChoice:
    """Return the query plan in a JSON text; raise ``CommandError`` naming its first fault."""
    try:
        return _hand_made(_read(text), space)
    except RecursionError:  # raised by reading it, or by quoting a part
        raise CommandError("the plan is nested too deep to be one") from None


def _hand_made(read: Mapping[str, Any], space: SessionSpace) -> SessionChoice:
    stages = [stage.name for stage in space.space.stages]
    tiers = _tiers(read.get("stages"), space)
    options = _options(read.get("config", {}), space)
    quarters = _quarters(read.get("shares", {}), tiers, space)
    return SessionChoice(
        settings={task: space.setting_of(task, options) for task in stages},
        tiers=tiers,
        quarters=quarters,
        usd_per_h=sum(space.tiers[tiers[t]].price * quarters[t] / QUARTERS for t in stages),
    )


def _read(text: str) -> dict[str, Any]:
    try:
        read = json.loads(text, object_pairs_hook=unique_keys)
    except ValueError as error:
        raise CommandError(f"the plan is no JSON: {error}") from error
    known = ("stages", "config", "shares")
    if not isinstance(read, dict) or set(read) - set(known):
        raise CommandError(f"the plan is not an object with the keys {', '.join(known)} only")
    return read


def _tiers(stages: Any, space: SessionSpace) -> dict[str, str]:
    if not isinstance(stages, list) or not all(
        isinstance(each, list) and [type(part) for part in each] == [str, str] for each in stages
    ):
        raise CommandError('the plan\'s stages are no list of [TASK, TIER], as in ["scan", "edge"]')
    tiers: dict[str, str] = {task: tier for task, tier in stages}
    if len(tiers) < len(stages):
        ((task, _),) = Counter(task for task, _ in stages).most_common(1)
        raise CommandError(f"the plan has two tiers for task {task!r}; remove one")
    for stage in space.space.stages:
        if stage.name not in tiers:
            raise CommandError(f"the plan has no tier for task {stage.name!r}; add it to stages")
        if tiers[stage.name] not in stage.tiers:
            raise CommandError(
                f"task {stage.name!r} may not run on {tiers[stage.name]!r}; its tiers are "
                f"{', '.join(stage.tiers)}"
            )
    unknown = sorted(set(tiers) - {stage.name for stage in space.space.stages})
    if unknown:
        raise CommandError(f"the plan has a tier for {unknown[0]!r}, which is no task; remove it")
    hop = space.missing_link(tiers)
    if hop is not None:
        raise CommandError(
            f"the plan needs a link {'>'.join(hop)}, and the pipeline file has none; add it under "
            "cluster.links, or choose other tiers"
        )
    return tiers


def _options(config: Any, space: SessionSpace) -> dict[str, str]:
    if not isinstance(config, dict):
        raise CommandError('the plan\'s config is no object, as in {"scan.scale": 0.5}')
    named = {key: _option(key, value) for key, value in config.items()}
    knobs = {f"{knob.stage}.{knob.name}": knob for knob in space.space.knobs}
    for key in named:
        if key not in knobs:
            near = get_close_matches(key, knobs, n=1) or list(knobs)
            raise CommandError(f"the plan sets {key!r}, which is no knob; try {near[0]!r}")
    for key, knob in knobs.items():
        if len(knob.options) == 1:
            named.setdefault(key, knob.options[0])
        if named.get(key) not in knob.options:
            # As a literal: a text of JSON may hold half a character, which no record can.
            given = repr(named[key]) if key in named else "nothing"
            raise CommandError(
                f"the plan sets {key} to {given}; its options are {', '.join(knob.options)}"
            )
    return named


def _option(key: str, value: Any) -> str:
    whole = isinstance(value, int) and abs(value) <= 2**53  # a float can hold it
    if not (whole or isinstance(value, str | float)):
        raise CommandError(f"the plan sets {key} to no text or number; write one of its options")
    return option_name(value)


def _quarters(shares: Any, tiers: Mapping[str, str], space: SessionSpace) -> dict[str, int]:
    if not isinstance(shares, dict) or set(shares) - set(tiers):
        raise CommandError('the plan\'s shares are no object by task, as in {"read": 0.25}')
    free = {stage.name for stage in space.space.stages if stage.cpu}
    found: dict[str, int] = {}
    for task, tier in tiers.items():
        share = shares.get(task, 1.0)
        if share not in (0.25, 0.5, 0.75, 1.0):
            raise CommandError(f"the plan's share of {task!r} is {share!r}; write 0.25 to 1")
        own = space.tiers[tier].own or task in free
        found[task] = 0 if own else int(share * QUARTERS)
    return found
