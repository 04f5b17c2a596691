"""The control app's driver and the simulator produce the same effects of the controller.

The control app is away for a while; ``tests/control_roads.py`` runs both drivers.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import get_args

import numpy as np
import pytest

from benchmarks.small_cluster import a_cluster
from control.policies.solvers import MIX
from headrace.arrivals.arrival_processes import Rates, Recorded
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.config.sizes_file import size_distribution
from headrace.simulation.faults import CONTROL_DOWN, Fault
from headrace.simulation.run_input import Run
from schemas.effects import (
    Arrived,
    Assign,
    ControlEffect,
    Count,
    Counted,
    Effect,
    Infer,
    OperatorEffect,
    Scale,
    Send,
    Solve,
    Solved,
    Wake,
    Woke,
)  # fmt: skip
from schemas.records import Selection
from streams.control_app import control_effects
from streams.simulated import simulated_driver
from tests.control_roads import assert_the_same, recorded
from tests.typed_files import RENTING, a_typed_file

POSTCODE = Path(__file__).parents[2] / "examples" / "postcode" / "pipeline.yaml"
AWAY_S, FOR_S = 3.05, 1.5
LENGTH_S = 7.0  # after the first arrival


def the_file(policy: str, folder: Path) -> PipelineFile:
    """Return the postcode file, or a one-task file for policies that plan a single task."""
    if policy in ("ramsis", "kairos"):
        alone: Mapping[str, Sequence[str]] = {"read": ()}
        policies = {
            "ramsis": {"kind": "ramsis", "loads": [30, 60], "steps": 20, "longest_run": 1}
        }  # fast to create
        return read_pipeline_file(
            a_cluster(folder, children=alone, fan_out=0, policy=policy, policies=policies)
        )
    return read_pipeline_file(POSTCODE)


def the_run(policy: str, folder: Path) -> Run:
    return Run(
        file=the_file(policy, folder),
        policy=policy,
        seed=3,
        arrivals=Recorded(np.arange(180) / 30.0),
        faults=(Fault(kind=CONTROL_DOWN, at_s=AWAY_S, for_s=FOR_S),),
    )


@pytest.mark.parametrize("policy", ["loki", "static", "proteus", "ramsis", "kairos"])
def test_both_drivers_of_the_controller_ask_for_the_same_effects_one_by_one(
    policy: str, tmp_path: Path
) -> None:
    here = assert_the_same(recorded(the_run(policy, tmp_path), LENGTH_S))
    kinds = {type(event) for _, event, _ in here}
    assert kinds == {Arrived, Counted, Solved, Woke}
    asked = {type(effect) for _, _, effects in here for effect in effects}
    assert {Count, Solve} <= asked
    tables = [e for _, _, effects in here for e in effects if isinstance(e, Send)
              and isinstance(e.record, Selection)]  # fmt: skip
    assert bool(tables) == (policy == "ramsis")


@pytest.mark.thorough
def test_both_drivers_rent_and_release_the_same_devices_at_the_same_times(tmp_path: Path) -> None:
    file = read_pipeline_file(a_typed_file(tmp_path, RENTING))
    rates = Rates((5.0,) * 8 + (35.0,) * 16 + (2.0,) * 40)
    run = Run(file=file, policy="kairos", seed=1, arrivals=rates, sizes=size_distribution(file))
    there = assert_the_same(recorded(run, 60.0))
    asked = [each for _, _, effects in there for each in effects]
    assert any(isinstance(each, Solve) and each.solver == MIX for each in asked)
    scaled = [each for each in asked if isinstance(each, Scale)]
    assert Scale("gpu", 1) in scaled
    assert [each for each in scaled if each.type == "gpu"][-1] == Scale("gpu", 0)


# ---------------------------------------------------------------------- coverage of effects


def kinds(union: UnionType) -> set[type]:
    return set(get_args(union))


def test_every_driver_performs_every_effect_of_what_it_runs() -> None:
    assert kinds(Effect) == kinds(OperatorEffect) | kinds(ControlEffect)
    assert set(control_effects._PERFORMED) == kinds(ControlEffect)
    inlined = kinds(Effect) - set(simulated_driver._PERFORMED)
    assert inlined == {Assign, Infer, Send, Wake}  # in its loop
