"""The types of values in a pipeline file: durations, sizes, names, devices, shares."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema

from schemas.durations import duration

SIZES = {"MB": 1e6, "GB": 1e9, "MiB": 2.0**20, "GiB": 2.0**30}
MOST_BYTES = 1e18
MOST_PROCESSES = 100_000  # of one kind
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]+)")
_DEVICE = re.compile(r"cpu|emulated|cuda:\d+")
_SPEC = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def size(value: Any) -> int:
    """Return the bytes of a text such as "512MB"; raises ``ValueError`` naming the units."""
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None or match.group(2) not in SIZES:
        raise ValueError(f"{{}} is {value!r}, which is no size; write one such as 512MB or 2GB")
    found = float(match.group(1)) * SIZES[match.group(2)]
    if found > MOST_BYTES:
        raise ValueError(f"{{}} is above {MOST_BYTES / 1e9:.0f}GB; write one such as 512MB or 2GB")
    return int(found)


RATES = {"bps": 1.0, "kbps": 1e3, "Mbps": 1e6, "Gbps": 1e9}
SLO_KEYS = ("latency", "accuracy", "cost")


def rate(value: Any) -> float:
    """Return the bytes a second of a text such as "8Mbps"; raises ``ValueError`` with the units."""
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None or match.group(2) not in RATES:
        raise ValueError(f"{{}} is {value!r}, which is no rate; write one such as 8Mbps or 1Gbps")
    found = float(match.group(1)) * RATES[match.group(2)] / 8
    if found > MOST_BYTES:
        raise ValueError(f"{{}} is above {MOST_BYTES * 8e-9:.0f}Gbps; write one such as 8Mbps")
    return found


def slo_seconds(value: Any) -> float:
    """Return the latency of an SLO: a duration, or a mapping of objectives.

    Raises ``ValueError`` for unknown keys and for objectives out of range.
    """
    if not isinstance(value, dict):
        return duration(value)
    unknown = [key for key in value if key not in SLO_KEYS]
    if unknown or "latency" not in value:
        raise ValueError(
            f"{{}} has the keys {', '.join(map(str, value)) or 'none'}; write latency, and "
            "accuracy and cost where they count"
        )
    objectives(value)
    return duration(value["latency"])


def objectives(value: Any) -> tuple[float | None, float | None]:
    """Return the least accuracy and the most $ an hour of an SLO; None for an objective not set."""
    accuracy, cost = (value.get(key) for key in SLO_KEYS[1:]) if isinstance(value, dict) else (
        None, None,
    )  # fmt: skip
    if accuracy is not None and not (_is_number(accuracy) and 0 <= accuracy <= 1):
        raise ValueError(f"{{}}.accuracy is {accuracy!r}; it must be a number from 0 to 1")
    if cost is not None and not (_is_number(cost) and cost >= 0):
        raise ValueError(f"{{}}.cost is {cost!r}; it must be $ an hour, 0 or more")
    return accuracy, cost


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _above_zero(seconds: float) -> float:
    if seconds <= 0:
        raise ValueError("{} is 0; it must be above 0")
    return seconds


def _share(value: float) -> float:
    if not 0 < value <= 1:
        raise ValueError(f"{{}} is {value:g}; it must be above 0 and at most 1")
    return value


def _confidence(value: float) -> float:
    if not 0.5 < value < 1:
        raise ValueError(f"{{}} is {value:g}; it must be above 0.5 and below 1")
    return value


def _port(value: int) -> int:
    if not 0 <= value <= 65535:
        raise ValueError(f"{{}} is {value}; it must be a port, 1 to 65535, or 0 for any free one")
    return value


def _name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]+", value):
        raise ValueError(f"{{}}: the name {value!r} may hold letters, digits, '-' and '_' only")
    return value


def _pipeline_name(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9-]+", value):
        raise ValueError(f"{{}} is {value!r}; it may hold small letters, digits and '-' only")
    return value


def _spec(value: str) -> str:
    if not _SPEC.fullmatch(value):
        raise ValueError(f"{{}} is {value!r}; write it as package.module:Name")
    return value


def is_device(value: str) -> bool:
    """Return whether a text is a device of a machine, such as "cpu" or "cuda:0"."""
    return _DEVICE.fullmatch(value) is not None


def device_name(value: str) -> str:
    """Return the name of a device of this machine; raises ``ValueError`` naming the devices."""
    if not is_device(value):
        raise ValueError(
            f"{{}}: {value!r} is no device; devices are cpu, cuda:0 and so on, emulated"
        )
    return value


def _type_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", value) or _DEVICE.fullmatch(value):
        raise ValueError(
            f"{{}}: {value!r} is no name of a device type; it may hold letters, digits, '.', '-' "
            "and '_', and is not that of a device"
        )
    return value


def _bounds(value: list[float]) -> list[float]:
    if len(value) != 2 or not 0 <= value[0] <= value[1] <= 1:
        raise ValueError(
            f"{{}} is {value}; write the smallest and the largest share, as in [0.3, 0.7]"
        )
    return value


def _positive(value: float) -> float:
    if not 0 < value < float("inf"):
        wanted = "finite" if value > 0 else "above 0"
        raise ValueError(f"{{}} is {value:g}; it must be {wanted}")
    return value


# The syntax of values, for editors; the validators above raise the errors.
_DURATION_TEXT = WithJsonSchema(
    {"type": "string", "pattern": r"^\d+(\.\d+)?\s*(s|ms|us)$", "examples": ["300ms", "2s"]}
)
_SIZE_TEXT = WithJsonSchema(
    {"type": "string", "pattern": r"^\d+(\.\d+)? ?(MB|GB|MiB|GiB)$", "examples": ["512MB"]}
)
_RATE_TEXT = WithJsonSchema({"type": "string", "examples": ["8Mbps"]})
_SLO_TEXT = WithJsonSchema(
    {"anyOf": [{"type": "string", "examples": ["300ms"]}, {"type": "object"}]}
)

Duration = Annotated[float, BeforeValidator(duration), AfterValidator(_above_zero), _DURATION_TEXT]
Latency = Annotated[float, BeforeValidator(duration), _DURATION_TEXT]  # 0 is valid
Rate = Annotated[float, BeforeValidator(rate), _RATE_TEXT]  # bytes a second
Slo = Annotated[float, BeforeValidator(slo_seconds), AfterValidator(_above_zero), _SLO_TEXT]
Positive = Annotated[float, AfterValidator(_positive)]
Bounds = Annotated[list[float], AfterValidator(_bounds)]
Size = Annotated[int, BeforeValidator(size), Field(gt=0), _SIZE_TEXT]
Name = Annotated[str, AfterValidator(_name)]
PipelineName = Annotated[str, AfterValidator(_pipeline_name)]
Spec = Annotated[str, AfterValidator(_spec)]
Device = Annotated[str, AfterValidator(device_name)]
TypeName = Annotated[str, AfterValidator(_type_name)]
Confidence = Annotated[float, AfterValidator(_confidence)]
DeviceShare = Annotated[float, AfterValidator(_share)]
Count = Annotated[int, Field(ge=1)]
Processes = Annotated[int, Field(ge=1, le=MOST_PROCESSES)]
Port = Annotated[int, AfterValidator(_port)]
Replicas = Annotated[int, Field(ge=0, le=MOST_PROCESSES)]


# A section is a mapping of known keys; nothing is converted silently.
STRICT = ConfigDict(extra="forbid", strict=True, frozen=True)
