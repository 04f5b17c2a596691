"""Which policies does a command line name? By name, or a name with options of its own.

    loki                                    the policy of that name
    loki-paper:dropping=none                the same with another rule
    loki:headroom=1.2:estimator=ewma        several of them

Options are the keys of a policy in the pipeline file that hold one value
(docs/reference/pipeline-file.md).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import yaml
from pydantic import ValidationError

from control.problem.problem import BUILT_IN, policy_named
from headrace.config.pipeline_file import PipelineError, PipelineFile
from headrace.config.sections import WANTED, PolicySection
from headrace.config.yaml_source import nearest
from schemas.pipeline import Policy

# Keys of the file, and what a policy calls them; others are called the same.
OPTIONS = (
    "latency", "rate", "solver", "gap", "nodes", "interval", "estimator", "headroom", "routing",
    "utilisation", "dropping", "budget", "batching", "price", "capped",
    "paced", "longest_run", "urgency", "guard", "lead", "learn", "bound", "pick", "late",
    "threshold",
)  # fmt: skip
_MEASURED: dict[Any, None] = {"auto": None}
_FIELDS = {"interval": "interval_s", "lead": "lead_s"}


def with_policies(file: PipelineFile, asked: Sequence[str]) -> PipelineFile:
    """The file with the policies that have options among its own; raises ``PipelineError``."""
    named = [policy_asked(file, text) for text in asked]
    more = tuple(policy for policy in named if ":" in policy.name)
    pipeline = replace(file.pipeline, policies=(*file.pipeline.policies, *more))
    return replace(file, pipeline=pipeline)


def policy_asked(file: PipelineFile, text: str) -> Policy:
    """The policy that a text names, by that name; raises ``PipelineError``."""
    name, *options = text.split(":")
    policy = policy_named(file.pipeline, name)
    if policy is None:
        known = dict.fromkeys([p.name for p in file.pipeline.policies] + list(BUILT_IN))
        raise PipelineError(f"there is no policy {name!r}; known are {', '.join(known)}")
    given: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or key not in OPTIONS:
            raise PipelineError(
                f"policy {text!r}: {key!r} is no option that a policy can be given here; "
                f"{nearest(key, list(OPTIONS))}, as in loki-paper:dropping=none"
            )
        given[key] = _scalar(value)
    read = _read(text, given)
    changes = {_FIELDS.get(key, key): _MEASURED.get(v := getattr(read, key), v) for key in given}
    return replace(policy, name=text, **changes) if changes else policy


def _scalar(value: str) -> Any:
    """A number, true and false as YAML reads them, everything else as a text."""
    try:
        read = yaml.safe_load(value)
    except yaml.YAMLError:
        return value
    return read if type(read) in (int, float) or value in ("true", "false") else value


def _read(text: str, given: dict[str, Any]) -> PolicySection:
    try:
        return PolicySection.model_validate(given)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        key, context = str(wrong["loc"][0]), wrong.get("ctx", {})
        told = f"{key} is {given[key]!r}; {WANTED.get(wrong['type'], wrong['msg'])}"
        if wrong["type"] == "literal_error":
            told = f"{key} is {given[key]!r}; it can be {context['expected']}"
        elif wrong["type"] == "value_error":
            told = str(context["error"]).replace("{}", key)
        raise PipelineError(f"policy {text!r}: {told}") from error
