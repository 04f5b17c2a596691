"""control/controller/commands.py: the effect of a command, or the reason for refusing it."""

import dataclasses

import pytest
from msgspec.structs import replace

from control.controller.command_queue import COMMAND_VALID_S
from control.controller.commands import ACTIONS, CommandError, Situation, carry_out, done_before
from schemas.pipeline import Policy
from schemas.records import Command, Plan, Settings
from tests.control_world import a_pipeline

SETTINGS = Settings(policy="static", slo_s=0.3, drained=("cuda:1",))


def a_plan(epoch: int, settings: Settings) -> Plan:
    return Plan(pipeline="postcode", epoch=epoch, issued_s=1.0, reason="", settings=settings)


SITUATION = Situation(
    pipeline=a_pipeline(policies=[Policy(name="accurate")]),
    settings=SETTINGS,
    devices={"w0": "cpu", "w1": "cuda:1"},
    plans={
        4: a_plan(4, Settings(policy="accurate", slo_s=1.0, paused=True)),
        5: a_plan(5, Settings(policy="forgotten", slo_s=1.0)),
    },
    types=("gpu",),
    others=("open-session",),
)


def after(action: str, **arguments: str) -> Settings:
    command = Command(id="c", pipeline="postcode", action=action, arguments=arguments)
    return carry_out(command, SITUATION)[0]


@pytest.mark.parametrize(
    ("action", "arguments", "settings"),
    [
        ("apply-policy", {"policy": "accurate"}, replace(SETTINGS, policy="accurate")),
        ("set-slo", {"slo": "250ms"}, replace(SETTINGS, slo_s=0.25)),
        ("set-demand", {"qps": "12.5"}, replace(SETTINGS, demand_qps=12.5)),
        ("set-price", {"price": "gpu=0.4"}, replace(SETTINGS, prices={"gpu": 0.4})),
        ("set-budget", {"budget": "2.5"}, replace(SETTINGS, budget=2.5)),
        ("release-demand", {}, SETTINGS),
        ("drain", {"target": "w0"}, replace(SETTINGS, drained=("cuda:1", "w0"))),
        ("drain", {"target": "cpu"}, replace(SETTINGS, drained=("cpu", "cuda:1"))),
        ("restore", {"target": "cuda:1"}, replace(SETTINGS, drained=())),
        ("pause", {}, replace(SETTINGS, paused=True)),
        ("resume", {}, SETTINGS),
        ("replan", {}, SETTINGS),
        ("rollback", {"epoch": "4"}, Settings(policy="accurate", slo_s=1.0, paused=True)),
        ("reload", {"variant": "read/vit"}, replace(SETTINGS, reloads={"read/vit": 1})),
    ],
)
def test_an_action_changes_the_settings(
    action: str, arguments: dict[str, str], settings: Settings
) -> None:
    assert after(action, **arguments) == settings


def test_an_unknown_action_names_all_that_there_are() -> None:
    with pytest.raises(CommandError, match=", ".join(sorted((*ACTIONS, "open-session")))):
        after("fly")


@pytest.mark.parametrize(
    ("action", "arguments", "sentence"),
    [
        ("aply-policy", {}, "no action 'aply-policy'; did you mean 'apply-policy'"),
        ("open_session", {}, "no action 'open_session'; did you mean 'open-session'?"),
        ("apply-policy", {}, "apply-policy needs the argument 'policy'"),
        ("apply-policy", {"policy": "acurate"}, "did you mean 'accurate'"),
        ("pause", {"now": "1"}, "pause has no argument 'now'; it takes none"),
        ("set-slo", {"slo": "250"}, "the SLO is '250' without a unit; write 250ms or 250s"),
        ("set-slo", {"slo": "0ms"}, "the SLO is 0ms; it must be above 0"),
        ("set-slo", {"slo": "481s"},
         "the SLO is 481s; work is kept for ten minutes, so 480s at most"),
        ("set-demand", {"qps": "many"}, "'many' is no demand"),
        ("set-price", {"price": "tpu=0.4"}, "no type 'tpu'"),
        ("set-price", {"price": "gpu"}, "'' is no price"),
        ("set-budget", {"budget": "0"}, "'0' is no price"),
        ("set-demand", {"qps": "-1"}, "'-1' is no demand"),
        ("set-demand", {"qps": "inf"}, "'inf' is no demand"),
        ("drain", {"target": "w2"}, "no worker or device 'w2'; did you mean 'w"),
        ("restore", {"target": "w0"}, "no drained worker or device 'w0'; there are: cuda:1"),
        ("rollback", {"epoch": "9"}, "there is no plan '9'; the nearest one known is 5"),
        ("rollback", {"epoch": "first"}, "there is no plan 'first'"),
        ("rollback", {"epoch": "9" * 5000}, "the nearest one known is 5"),
        ("rollback", {"epoch": "5"}, "no policy 'forgotten'"),
    ],
)  # fmt: skip
def test_invalid_command_gets_a_remedy(
    action: str, arguments: dict[str, str], sentence: str
) -> None:
    with pytest.raises(CommandError, match=sentence):
        after(action, **arguments)


def test_each_action_reports_its_effect() -> None:
    command = Command(id="c", pipeline="postcode", action="set-slo", arguments={"slo": "2s"})
    assert carry_out(command, SITUATION)[1] == "the SLO is 2s"


def test_the_actions_are_those_of_the_handbook() -> None:
    assert sorted(ACTIONS) == [
        "apply-policy", "drain", "pause", "release-demand", "reload", "replan", "restore",
        "resume", "rollback", "set-budget", "set-demand", "set-price", "set-slo",
    ]  # fmt: skip


def reloaded(target: str, before: Settings = SETTINGS) -> Settings:
    command = Command(id="c", pipeline="", action="reload", arguments={"variant": target})
    return carry_out(command, dataclasses.replace(SITUATION, settings=before))[0]


def test_a_reload_concerns_a_variant_a_task_or_all() -> None:
    every = {v.key for task in SITUATION.pipeline.tasks for v in task.variants}
    of_read = {key for key in every if key.startswith("read/")}
    assert reloaded("all").reloads == dict.fromkeys(every, 1)
    assert reloaded("read").reloads == dict.fromkeys(of_read, 1)


def test_each_reload_has_a_higher_number_which_a_rollback_keeps() -> None:
    twice = reloaded("read", reloaded("all"))
    assert max(twice.reloads.values()) == 2
    situation = dataclasses.replace(SITUATION, settings=twice)
    back = Command(id="c", pipeline="", action="rollback", arguments={"epoch": "4"})
    assert carry_out(back, situation)[0].reloads == twice.reloads


def test_reload_of_an_unknown_variant_names_the_nearest_one() -> None:
    with pytest.raises(CommandError, match="no variant or task 'raed'; did you mean 'read'"):
        reloaded("raed")


@pytest.mark.parametrize(
    ("id", "issued_s", "message"),
    [
        ("c", 101.0, "carried out by plan 4, before the control app restarted"),
        ("c", 100.0 - COMMAND_VALID_S - 1.0, ""),
        ("c", 100.0 + COMMAND_VALID_S + 1.0, ""),
        ("d", 100.0, ""),
    ],
    ids=["by a clock that is behind", "long before", "an id given again", "another"],
)
def test_plan_tells_which_command_it_carries_out(id: str, issued_s: float, message: str) -> None:
    plans = [a_plan(3, SETTINGS), replace(a_plan(4, SETTINGS), issued_s=100.0, command="c")]
    command = Command(id=id, pipeline="postcode", action="replan", issued_s=issued_s)
    assert done_before(command, plans) == message
