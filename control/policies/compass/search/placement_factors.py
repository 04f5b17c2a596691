"""Compute the factors by which tiers and links stretch the stages of every placement.

A stage's reference seconds are divided by the speed of its tier, those of ``cpu`` stages by the
tier's ``cpu_speed``. A hop between tiers takes ``bytes / rate + delay``; a hop within a tier takes
nothing. Inputs start on the session's own tier, and results return there.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from control.policies.compass.search.composition import Deployment
from control.problem.paces import pace_of
from control.problem.problem import PlanError
from control.problem.session_space import VARIANT, SessionSpace
from control.problem.space import Space, leaves
from control.problem.tiers import Link, SessionTier
from schemas.variant_id import variant_key

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

UNREACHABLE_S = 1e12  # delay of a missing link, or one of 0 bytes a second


def model_bytes(sessions: SessionSpace) -> Floats:
    """Return the bytes of the models, configurations x stages; 0: not known."""
    known = sessions.memory
    columns = [
        np.array([known.get(each, 0.0) for each in variants])[chosen]
        for variants, chosen in _variants(sessions)
    ]
    return np.stack(columns, axis=1)


def _variants(sessions: SessionSpace) -> Iterator[tuple[list[str], Ints]]:
    """Yield the variants of every stage, and the index of that of each configuration."""
    space = sessions.space
    columns = {knob.stage: at for at, knob in enumerate(space.knobs) if knob.name == VARIANT}
    for stage in space.stages:
        at = columns.get(stage.name)
        if at is None:
            names: tuple[str, ...] = (sessions.variants.get(stage.name, ""),)
            chosen = np.zeros(space.configuration_count, dtype=np.int64)
        else:
            names, chosen = space.knobs[at].options, space.configurations[:, at]
        yield [variant_key(stage.name, each) for each in names], chosen


def session_deployment(sessions: SessionSpace, memory: Floats, qps: float = 0.0) -> Deployment:
    """Return the factors of the placements that a session of ``qps`` queries/s may choose, with
    the time between processes in every hop's delay; as ``deployment``.

    A query's deadline counts from its producer, so its way to ingress is part of the first hop.
    """
    found = deployment(sessions.space, sessions.tiers, sessions.links, sessions.origin, memory)
    delay = found.delay + sessions.comm_s
    delay[0] += sessions.comm_s
    return replace(found, qps=qps, delay=delay, pace=_pace(sessions))


def _pace(sessions: SessionSpace) -> Floats | None:
    """Return the paces of operators, configurations x stages x placements; None: all are 1."""
    if not sessions.paces:
        return None
    space = sessions.space
    placements = space.placements
    columns = []
    for index, (variants, chosen) in enumerate(_variants(sessions)):
        paces = [[pace_of(sessions.paces, each, tier) for tier in space.tiers] for each in variants]
        columns.append(np.array(paces)[:, placements[:, index]][chosen])
    return np.stack(columns, axis=1)


def deployment(
    space: Space,
    tiers: Mapping[str, SessionTier],
    links: Mapping[tuple[str, str], Link],
    origin: str,
    memory: Floats,
) -> Deployment:
    """Return the factors of every placement; ``memory[c, s]`` are the bytes of the models.

    ``links`` holds both directions. Raises ``PlanError`` if every placement needs a missing link.
    """
    order = [tiers[name] for name in space.tiers]
    placements = space.placements
    cpu = np.array([stage.cpu for stage in space.stages])
    speed = np.array([each.speed for each in order])[placements]
    cpu_speed = np.array([each.cpu_speed for each in order])[placements]
    price = np.array([0.0 if each.own else each.price for each in order])[placements]
    room = np.array([each.memory_bytes for each in order])[placements]
    room = np.where(cpu, np.inf, room)
    froms, tos = _hops(space, space.tiers.index(origin))
    per_byte, delay = _link_tables(space, links)
    _check_links(space, froms, tos, delay)
    return Deployment(
        space=space,
        slowdown=np.where(cpu, 1 / cpu_speed, 1 / speed).T,
        per_byte=per_byte[froms, tos].T,
        delay=delay[froms, tos].T,
        price=np.where(cpu, 0.0, price).T,
        memory=memory,
        capacity=room.T,
        fits=np.all(memory[:, None, :] <= room[None], axis=2),
        own_tiers=frozenset(name for name, each in tiers.items() if each.own),
    )


def _hops(space: Space, origin: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the start and end tiers of every hop: into each stage, then back from each leaf."""
    at = {stage.name: index for index, stage in enumerate(space.stages)}
    placements = space.placements
    home = np.full(len(placements), origin, dtype=np.int64)
    ends = leaves(space.stages)
    froms = [placements[:, at[s.parent]] if s.parent else home for s in space.stages]
    tos = [placements[:, index] for index in range(len(space.stages))]
    return (
        np.stack([*froms, *(placements[:, leaf] for leaf in ends)], axis=1),
        np.stack([*tos, *(home for _ in ends)], axis=1),
    )


def _link_tables(space: Space, links: Mapping[tuple[str, str], Link]) -> tuple[Floats, Floats]:
    count = len(space.tiers)
    per_byte = np.zeros((count, count))
    delay = np.full((count, count), UNREACHABLE_S)
    np.fill_diagonal(delay, 0.0)
    for (one, other), link in links.items():
        pair = space.tiers.index(one), space.tiers.index(other)
        if link.bytes_per_s > 0:
            per_byte[pair], delay[pair] = 1 / link.bytes_per_s, link.delay_s
    return per_byte, delay


def _check_links(
    space: Space, froms: NDArray[np.int64], tos: NDArray[np.int64], delay: Floats
) -> None:
    missing = delay[froms, tos] >= UNREACHABLE_S
    if not missing.any(axis=1).all():
        return
    row, hop = np.argwhere(missing)[0]
    one, other = space.tiers[froms[row, hop]], space.tiers[tos[row, hop]]
    raise PlanError(
        f"no placement can be reached: there is no link {one}>{other}, or its rate is 0; add it "
        "under cluster.links"
    )
