"""A pipeline with sessions for tests: two tasks, three knobs, a tier of the sessions' own."""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np

from control.problem.sample_sets import RECENT
from control.problem.seats import seat_device, seat_worker
from control.problem.session_space import SessionSpace
from control.problem.space import Knob, Space, Stage
from control.problem.tiers import Link, SessionTier
from schemas.effects import (
    PROFILE_REQUESTS,
    PROFILE_RESULTS,
    Arrived,
    Assign,
    Effect,
    Event,
    Send,
    Wake,
    Woke,
)
from schemas.pipeline import Pipeline, Policy
from schemas.records import ProfileRequest, ProfileResult, SessionPlan, SessionStage
from tests.builders import a_pipeline

TASKS = ("scan", "read")
TIERS = {"handheld": ("scan",), "depot": TASKS, "cloud": TASKS}
EVERY_LINK = dict.fromkeys(permutations(TIERS, 2), Link(1e9, 0.0))


def a_session_pipeline(**changes: Any) -> Pipeline:
    """Return scan -> read under a policy that plans sessions."""
    usual = {
        "slo_s": 1.0,
        "policies": (Policy(name="compass", kind="compass"),),
        "policy": "compass",
        "sessions": True,
    }
    return a_pipeline({"scan": ["read"], "read": []}, **(usual | changes))


def a_space(counts: Mapping[str, int] | None = None) -> SessionSpace:
    """Return knobs scan.scale, read.variant and read.votes on handheld, depot and cloud."""
    return SessionSpace(
        space=Space(
            stages=(
                Stage("scan", "", ("handheld", "depot", "cloud")),
                Stage("read", "scan", ("depot", "cloud")),
            ),
            knobs=(
                Knob("scan", "scale", ("1", "0.5")),
                Knob("read", "variant", ("v", "w")),
                Knob("read", "votes", ("1", "3")),
            ),
            tiers=tuple(TIERS),
        ),
        tiers={
            "handheld": SessionTier(speed=0.5, own=True),
            "depot": SessionTier(price=0.05),
            "cloud": SessionTier(price=0.2),
        },
        links={("handheld", "cloud"): Link(1e6, 0.01), ("cloud", "handheld"): Link(1e6, 0.01)},
        origin="handheld",
        latency_s=1.0,
        accuracy=0.9,
        usd_per_h=None,
        values={"scan.scale": {"1": 1, "0.5": 0.5}, "read.votes": {"1": 1, "3": 3}},
        variants={"scan": "v"},
        counts=counts or {"handheld": 2, "depot": 1, "cloud": 1},
    )


def seats(space: SessionSpace) -> dict[str, str]:
    """Return every worker of the tiers' devices, with the device that it reports."""
    return {
        seat_worker(f"{tier}-{number}", task): seat_device(task, tier)
        for tier, count in space.counts.items()
        for number in range(count)
        for task in TIERS[tier]
    }


def a_query_plan(setting: str) -> SessionPlan:
    """Return a query plan of one stage, in slot 0; its session is named like the setting."""
    stage = SessionStage(
        task="scan", setting=setting, tier="cloud", device="cloud-0", slot=0, quarters=1
    )
    return SessionPlan(session=setting, number=1, slo_s=1.0, stages=(stage,), admits=True)


def a_hand_made_plan(
    scan: str = "handheld", read: str = "cloud", votes: int = 1, variant: str = "v",
    share: float = 1.0, scale: float = 1,
) -> str:  # fmt: skip
    """Return a query plan as ``headrace session open --plan`` sends it."""
    config = {"scan.scale": scale, "read.variant": variant, "read.votes": votes}
    stages = [["scan", scan], ["read", read]]
    return json.dumps({"stages": stages, "config": config, "shares": {"read": share}})


Scores = Callable[[Mapping[str, str]], float]  # options to the share of right answers


class Profilers:
    """A profiler in virtual time: ``scores`` by configuration's options, ``seconds`` per sample.

    Sessions' own inputs have the scores ``recent``. ``run`` lists the blocks that it has run, by
    sample set and configuration, and first sample.
    """

    def __init__(
        self, scores: Scores, seconds: float = 0.002, recent: Scores | None = None,
        partitions: Sequence[int] = range(8),
    ) -> None:  # fmt: skip
        self._scores, self._seconds, self._partitions = scores, seconds, tuple(partitions)
        self._recent = recent or scores
        self._free_s = 0.0
        self._due: list[tuple[float, ProfileResult]] = []
        self._known: set[tuple[str, int]] = set()
        self.run: list[tuple[str, int]] = []

    def handle(self, event: Event, now: float) -> list[Effect]:
        if isinstance(event, Woke) and not self._free_s:
            self._free_s = now
            return [Assign(PROFILE_REQUESTS, self._partitions)]
        if isinstance(event, Arrived) and isinstance(event.record, ProfileRequest):
            return self._taken(event.record, now)
        due = [result for at_s, result in self._due if at_s <= now]
        self._due = [(at_s, result) for at_s, result in self._due if at_s > now]
        return [
            Send(PROFILE_RESULTS, result, 0, f"{result.options}/{result.first}") for result in due
        ]

    def _taken(self, request: ProfileRequest, now: float) -> list[Effect]:
        block = f"{request.sample_set} {sorted(request.options.items())}", request.first
        spent_s = 0.0 if block in self._known else (request.upto - request.first) * self._seconds
        if block not in self._known:
            self._known.add(block)
            self.run.append(block)
        self._free_s = max(self._free_s, now) + spent_s + 1e-4
        self._due.append((self._free_s, self._result(request, spent_s)))
        return [Wake(self._free_s)]

    def _result(self, request: ProfileRequest, spent_s: float) -> ProfileResult:
        rng = np.random.default_rng([request.first, len(str(sorted(request.options.items())))])
        count, votes = request.upto - request.first, int(request.options["read.votes"])
        right = self._recent if request.sample_set.startswith(RECENT) else self._scores
        scores = (rng.random(count) < right(request.options)).astype(float)
        return ProfileResult(
            pipeline=request.pipeline, space=request.space, options=request.options,
            sample_set=request.sample_set, first=request.first, scores=tuple(scores.tolist()),
            seconds={"scan": 0.004 * count, "read": 0.01 * count * votes},
            bytes={"scan": 2000.0 * count, "read": 20.0 * count}, cached={},
            input_bytes=9e3 * count, spent_s=spent_s, device="cpu",
            profiler="profiler", finished_s=self._free_s, search=request.search,
        )  # fmt: skip
