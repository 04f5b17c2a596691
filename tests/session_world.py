"""A pipeline with sessions for tests: two tasks, three knobs, a tier of the sessions' own."""

import json
from collections.abc import Mapping
from typing import Any

from control.problem.seats import seat_device, seat_worker
from control.problem.session_space import SessionSpace
from control.problem.space import Knob, Space, Stage
from control.problem.tiers import Link, SessionTier
from schemas.pipeline import Pipeline, Policy
from tests.builders import a_pipeline

TASKS = ("scan", "read")
TIERS = {"handheld": ("scan",), "depot": TASKS, "cloud": TASKS}


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


def a_hand_made_plan(
    scan: str = "handheld", read: str = "cloud", votes: int = 1, variant: str = "v",
    share: float = 1.0, scale: float = 1,
) -> str:  # fmt: skip
    """Return a query plan as ``headrace session open --plan`` sends it."""
    config = {"scan.scale": scale, "read.variant": variant, "read.votes": votes}
    stages = [["scan", scan], ["read", read]]
    return json.dumps({"stages": stages, "config": config, "shares": {"read": share}})
