"""Parse policies on the command line: a name, or a name with options.

    loki                                    the policy of that name
    loki-paper:dropping=none                with one option
    loki:headroom=1.2:estimator=ewma        with several options

Only options with a single value are allowed (docs/reference/pipeline-file.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml
from pydantic import ValidationError

from control.policies import known_kinds, policy_named, spec_of
from control.policies.option_fields import COMMON, with_options
from control.policies.spec import PolicySpec
from headrace.config.pipeline_file import PipelineFile
from headrace.config.policy_sections import options_in, single_valued
from headrace.config.sections import WANTED
from headrace.config.yaml_source import suggestion
from headrace.errors import PipelineError
from schemas.pipeline import Policy


def with_policies(file: PipelineFile, asked: Sequence[str]) -> PipelineFile:
    """Return the file with the policies that have options added; raises ``PipelineError``."""
    named = [policy_asked(file, text) for text in asked]
    more = tuple(policy for policy in named if ":" in policy.name)
    pipeline = replace(file.pipeline, policies=(*file.pipeline.policies, *more))
    return replace(file, pipeline=pipeline)


def policy_asked(file: PipelineFile, text: str) -> Policy:
    """Return the policy that a text describes, named by the text; raises ``PipelineError``."""
    name, *options = text.split(":")
    policy = policy_named(file.pipeline, name)
    if policy is None:
        names = dict.fromkeys([p.name for p in file.pipeline.policies] + list(known_kinds()))
        raise PipelineError(f"there is no policy {name!r}; known are {', '.join(names)}")
    spec = spec_of(policy.kind)
    known = single_valued(spec)
    given: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or key not in known:
            raise PipelineError(
                f"policy {text!r}: {key!r} is no option that a policy can be given here; "
                f"{suggestion(key, known)}, as in loki-paper:dropping=none"
            )
        if key in given:
            raise PipelineError(f"policy {text!r} has {key!r} twice; remove one")
        given[key] = _scalar(value)
    return _changed(replace(policy, name=text), spec, _read(text, spec, given)) if given else policy


def _changed(policy: Policy, spec: PolicySpec, values: Mapping[str, Any]) -> Policy:
    fields = {each.field: values[each.name] for each in COMMON if each.name in values}
    own = {each.name: values[each.name] for each in spec.options if each.name in values}
    return with_options(replace(policy, **fields), **own)


def _scalar(value: str) -> Any:
    """Return a number or a boolean as YAML reads it; any other value as text."""
    try:
        read = yaml.safe_load(value)
    except yaml.YAMLError:
        return value
    return read if type(read) in (int, float) or value in ("true", "false") else value


def _read(text: str, spec: PolicySpec, given: dict[str, Any]) -> dict[str, Any]:
    try:
        return options_in(spec, given)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        key, context = str(wrong["loc"][0]), wrong.get("ctx", {})
        message = f"{key} is {given[key]!r}; {WANTED.get(wrong['type'], wrong['msg'])}"
        if wrong["type"] == "literal_error":
            message = f"{key} is {given[key]!r}; it can be {context['expected']}"
        elif wrong["type"] == "value_error":
            message = str(context["error"]).replace("{}", key)
        raise PipelineError(f"policy {text!r}: {message}") from error
