"""The composed latency of a query plan is that of its queries in virtual time, where operators take
exactly their recorded seconds and every hop takes ``comm``, that from the producer to ingress too:
links and tiers are composed as they serve."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.composed_latency import FOLDER, as_plan, drawn, for_one_session
from control.controller.session_commands import CLOSE, OPEN
from control.policies.compass.search.placement_factors import model_bytes, session_deployment
from headrace.config.pipeline_file import search_space
from headrace.planning.recorded_truth import read_truth
from headrace.simulation.sessions.session_nodes import RecordedProfilers, Recording
from headrace.simulation.sessions.session_run import simulated_system, written_records
from schemas.effects import COMMANDS, QUERIES, RESULTS
from schemas.records import ANSWERED, Command, Query
from streams.simulated.delays import constant_delays

PLANS, OPENS_S, SERVES_S, EVERY_S = 20, 2.0, 3.0, 12.0


def test_random_plans_take_their_composed_latency(tmp_path: Path) -> None:
    file = for_one_session(tmp_path / "postcode")
    space = search_space(file)
    truth = read_truth(FOLDER / "planned-truth.json", space.space)
    recording = Recording(file.pipeline, space, truth)
    deployed = session_deployment(space, model_bytes(space))
    profilers = RecordedProfilers(space, recording, space.profilers)
    system = simulated_system(file, space, recording, profilers, constant_delays(space.comm_s))
    payload = b"\0" * int(truth.sent[:, 0].mean())
    composed: dict[str, float] = {}
    for number, (c, p) in enumerate(drawn(space, deployed, PLANS, seed=0)):
        name, at_s = f"plan-{number}", OPENS_S + EVERY_S * number
        plan = json.dumps(as_plan(space, c, p))
        for action, later_s, asked in (
            (OPEN, 0.0, {"plan": plan, "slo": "5s"}),
            (CLOSE, SERVES_S + 1.0, {}),
        ):
            command = Command(
                id=f"{action}-{name}", pipeline=file.pipeline.name, action=action,
                arguments={"session": name, **asked},
            )  # fmt: skip
            system.input(at_s + later_s, COMMANDS, 0, command)
        system.input(at_s + SERVES_S, QUERIES, 0, Query(payload=payload, id=name, session=name))
        tiers = space.space.placed(p)
        seconds = [
            recording.setting(space.setting(task, c), tier).latency_s(1) * space.tiers[tier].speed
            for task, tier in tiers.items()
        ]
        latency = deployed.latency(np.array([seconds]), truth.sent[c : c + 1])
        composed[name] = float(latency[0, p])
    system.run(OPENS_S + EVERY_S * PLANS)
    answers = {each.id: each for each in written_records(system, RESULTS)}
    assert {each.outcome for each in answers.values()} == {ANSWERED}
    lived = {name: each.answered_s - each.created_s for name, each in answers.items()}
    # An output has the mean size of its setting's, which its configuration's may differ from.
    assert lived == pytest.approx(composed, abs=5e-4)
