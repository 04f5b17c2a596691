"""Give commands from the terminal, wait for the result and print it; list policies and plans."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any

from msgspec import structs

from control.controller.command_queue import COMMAND_VALID_S
from control.policies import known_kinds, spec_of
from control.problem.problem import PlanError
from control.rollout.leases import running
from headrace.broker.connect import reached, reached_running
from headrace.cells import local_time
from headrace.client.topic_clients import Commander, retained_plans
from headrace.config.pipeline_file import PipelineFile
from headrace.errors import INFEASIBLE, UNSUCCESSFUL
from headrace.terminal import print_json, print_rich, print_text, say
from schemas.pipeline import Pipeline, Policy
from schemas.records import CommandResult, Plan
from streams.kafka.admin.preflight import prepare
from streams.kafka.kafka_config import KafkaConfig

RESULT_WITHIN_S = COMMAND_VALID_S + 5.0  # by then the command has expired


def give(
    file: PipelineFile, kafka: KafkaConfig, action: str, arguments: Mapping[str, str]
) -> CommandResult:
    """Give a command and return its result; raises ``Unsuccessful`` if none arrives."""
    prepare(kafka, file.pipeline, "operator")
    return _given(file.pipeline.name, kafka, action, arguments)


def _given(
    name: str, kafka: KafkaConfig, action: str, arguments: Mapping[str, str]
) -> CommandResult:
    with closing(Commander(kafka, name)) as commander:
        return commander.result(commander.give(action, arguments), RESULT_WITHIN_S, say)


def give_command(
    name: str,
    file: PipelineFile | None,
    bootstrap: str | None,
    action: str,
    arguments: Mapping[str, str],
    *,
    as_json: bool,
) -> int:
    """Give a command, print its result and return the exit code: 1 refused, 3 infeasible plan.

    ``file`` None: only the name of the pipeline is known, and it runs, so that it has its topics.
    """
    kafka = reached(bootstrap)
    if file is None:
        result = _given(name, kafka, action, arguments)
    else:
        result = give(file, kafka, action, arguments)
    plan = next((p for p in retained_plans(kafka, name) if p.epoch == result.epoch), None)
    infeasible = result.ok and plan is not None and not plan.feasible
    if as_json:
        print_json({**structs.asdict(result), "feasible": not infeasible})
    elif result.ok:
        print_text(f"{result.message} (plan {result.epoch})")
    else:
        say(f"headrace: {action} was refused: {result.message}")
    if infeasible and plan is not None:
        say(f"headrace: plan {plan.epoch} is not feasible: {plan.binding}")
        return INFEASIBLE
    return 0 if result.ok else UNSUCCESSFUL


def list_policies(file: PipelineFile, bootstrap: str | None, *, as_json: bool) -> None:
    """Print the policies: the file's, the built-in ones, those of installed packages."""
    history = retained_plans(reached_running(bootstrap), file.pipeline.name)
    in_force = history[-1].settings.policy if history else None
    policies = (*file.pipeline.policies, *_others(file.pipeline))
    if as_json:
        print_json([{**policy_row(p), "in_force": p.name == in_force} for p in policies])
        return
    rows = [
        ("*" if p.name == in_force else "", p.name, p.kind, _counts(p.replicas),
         spec_of(p.kind).summary)
        for p in policies
    ]  # fmt: skip
    print_rich(plain_table(("", "policy", "kind", "replicas", "what it does"), rows))
    if in_force is None:
        say("no plan is on the broker yet; `headrace up FILE` creates the first")


def _others(pipeline: Pipeline) -> Iterator[Policy]:
    """Yield the policies that need no section in the file; name those that cannot be loaded."""
    named = {policy.name for policy in pipeline.policies}
    for kind in known_kinds():
        try:
            policy = spec_of(kind).usual
        except PlanError as error:
            say(f"headrace: {error}")
            continue
        if kind not in named:
            yield policy


def policy_row(policy: Policy) -> dict[str, Any]:
    """Return a policy's options, the kind's own among them."""
    row = asdict(policy)
    row |= row.pop("options")
    return row


def list_plans(name: str, bootstrap: str | None, last: int, *, as_json: bool) -> None:
    """Print the newest plans of a pipeline, newest first."""
    newest = retained_plans(reached_running(bootstrap), name)[: -last - 1 : -1]
    if as_json:
        print_json([plan_row(plan) for plan in newest])
        return
    rows = [
        (str(p.epoch), local_time(p.issued_s), p.settings.policy, f"{p.settings.slo_s * 1e3:g} ms",
         variants_text(p), "" if p.feasible else "infeasible", p.reason)
        for p in newest
    ]  # fmt: skip
    print_rich(plain_table(("plan", "time", "policy", "SLO", "variants", "", "why"), rows))


def plan_row(plan: Plan) -> dict[str, Any]:
    """Return a plan's JSON summary."""
    return {
        "epoch": plan.epoch,
        "issued_s": plan.issued_s,
        "reason": plan.reason,
        "causes": list(plan.causes),
        "settings": structs.asdict(plan.settings),
        "variants": variants(plan),
        "demand_qps": plan.demand_qps,
        "capacity_qps": plan.capacity_qps,
        "expected_accuracy": plan.expected_accuracy,
        "feasible": plan.feasible,
        "binding": plan.binding,
        "mode": plan.mode,
    }


def variants(plan: Plan) -> dict[str, int]:
    """Return the number of workers that take new work, by "task/variant"."""
    return running(plan.leases)


def variants_text(plan: Plan) -> str:
    """Return the number of workers that take new work per variant, in words."""
    return _counts(variants(plan))


def plain_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    """Return a table without lines."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold")
    for head in heads:
        made.add_column(head, overflow="fold")
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {key}" for key, count in counts.items()) or "-"
