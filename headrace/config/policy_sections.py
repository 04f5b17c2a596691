"""The sections ``policies.<policy>`` of a pipeline file: one model per kind, from its options."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BaseModel, Field, ValidationError, create_model
from pydantic_core import ErrorDetails

from control.policies import choosing_kinds, spec_of
from control.policies.option_fields import SEVERAL, Option, OptionType
from control.policies.spec import PolicySpec
from control.problem.problem import PlanError
from headrace.config.field_types import (
    STRICT,
    Confidence,
    Count,
    DeviceShare,
    Duration,
    Latency,
    Name,
    Positive,
)
from schemas.pipeline import Policy

KIND = "kind"
DEFAULT_KIND = "static"
AUTO = "auto"  # of ``SECONDS_OR_AUTO``: the measured value
Amount = Annotated[float, Field(ge=0)]

# The field type of each option type.
_TYPES: Mapping[OptionType, Any] = {
    OptionType.POSITIVE: Positive,
    OptionType.AMOUNT: Amount,
    OptionType.WHOLE: Count,
    OptionType.SHARE: DeviceShare,
    OptionType.CONFIDENCE: Confidence,
    OptionType.FRACTION: Annotated[float, Field(ge=0, le=1)],
    OptionType.PART: Annotated[float, Field(ge=0, lt=1)],
    OptionType.COUNT: Annotated[int, Field(ge=0)],
    OptionType.SECONDS: Duration,
    OptionType.SECONDS_OR_AUTO: Literal["auto"] | Latency,
    OptionType.SWITCH: bool,
    OptionType.TEXT: str,
    OptionType.RATES: list[Positive],
    OptionType.WHOLE_BY_VARIANT: dict[str, Count],
    OptionType.COUNT_BY_VARIANT: dict[str, Annotated[int, Field(ge=0)]],
    OptionType.SHARE_BY_VARIANT: dict[str, DeviceShare],
    OptionType.WHOLE_BY_NAME: dict[Name, Count],
    OptionType.AMOUNT_BY_NAME: dict[Name, Amount],
}


class KindSection(BaseModel):
    """The base of every policy section: the kind."""

    model_config = STRICT

    kind: str = DEFAULT_KIND


def _type_of(option: Option) -> Any:
    if option.type is OptionType.CHOICE:
        return Literal[option.permitted()]
    return _TYPES[option.type]


@cache
def section_of(spec: PolicySpec) -> type[KindSection]:
    """Return the section model of a kind: a key for each option, None if the file omits it."""
    fields = {each.name: (_type_of(each), Field(default=None)) for each in spec.every_option}
    return create_model(spec.name, __base__=KindSection, **cast(Any, fields))


def section_keys(section: object) -> list[str]:
    """Return the keys that a policy's mapping may have, by its kind."""
    kind = section.get(KIND, DEFAULT_KIND) if isinstance(section, dict) else DEFAULT_KIND
    spec = _known(kind) or spec_of(DEFAULT_KIND)
    return list(section_of(spec).model_fields)


def wrong_in(policies: object) -> list[ErrorDetails]:
    """Return the mistakes in the sections of the file's policies, with their places.

    ``checks.check_kind`` reports unknown kinds.
    """
    wrong: list[ErrorDetails] = []
    for name, values in policies.items() if isinstance(policies, dict) else ():
        kind = values.get(KIND, DEFAULT_KIND) if isinstance(values, dict) else DEFAULT_KIND
        spec = _known(kind)
        if spec is None and isinstance(kind, str):
            continue
        try:
            section_of(spec or spec_of(DEFAULT_KIND)).model_validate(values)
        except ValidationError as error:
            found = error.errors(include_url=False)
            wrong += [{**each, "loc": ("policies", name, *each["loc"])} for each in found]
    return wrong


def options_in(spec: PolicySpec, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a section names, converted; raises ``ValidationError``."""
    section = section_of(spec).model_validate(dict(values))
    given = [each.name for each in spec.every_option if each.name in section.model_fields_set]
    return {name: _value(getattr(section, name)) for name in given}


def _value(found: Any) -> Any:
    """Convert a validated value: a list to a tuple, ``AUTO`` to None."""
    if isinstance(found, list):
        return tuple(found)
    return None if found == AUTO else found


def policy_of(name: str, values: Mapping[str, Any]) -> Policy:
    """Return the policy that a valid section describes."""
    spec = spec_of(values.get(KIND, DEFAULT_KIND))
    return spec.policy(name, options_in(spec, values))


def tables(value: str) -> str:
    """Return the kind of a task's tables; raises ``ValueError`` for a kind without tables."""
    spec = _known(value)
    if value and (spec is None or not spec.chooses_by_worker):
        raise ValueError(f"{{}} is {value!r}; it can be {', '.join(choosing_kinds())}")
    return value


Tables = Annotated[str, AfterValidator(tables)]


def single_valued(spec: PolicySpec) -> list[str]:
    """Return the names of a kind's options with a single value."""
    return [option.name for option in spec.every_option if option.type not in SEVERAL]


def _known(kind: object) -> PolicySpec | None:
    """Return the kind of that name; None if it does not exist or cannot be loaded."""
    try:
        return spec_of(kind) if isinstance(kind, str) else None
    except PlanError:
        return None
