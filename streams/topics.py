"""Which topics exist: names, partitions, retention and keys in one table.

Nodes name topics logically ("queries", "work.read"); this module knows their names on the
broker. The control topics serve every pipeline; the others carry the pipeline's name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.effects import (
    COMMAND_RESULTS,
    COMMANDS,
    DEAD_LETTERS,
    OUTPUTS,
    PLANS,
    QUERIES,
    REPORTS,
    RESULTS,
    work_topic,
)
from schemas.pipeline import Pipeline

_MINUTE = 60_000
_DAY = 24 * 60 * _MINUTE
MAX_RECORD_BYTES = 8 * 1024 * 1024

SHARED = (PLANS, REPORTS, COMMANDS, COMMAND_RESULTS)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it is made: its name on the broker, partitions and broker settings."""

    name: str
    partitions: int
    settings: Mapping[str, str] = field(default_factory=dict)


def physical(pipeline: str, logical: str) -> str:
    """The broker's name of a topic."""
    return f"headrace.{logical}" if logical in SHARED else f"{pipeline}.{logical}"


def _deleted_after(milliseconds: int) -> dict[str, str]:
    # A segment is deleted whole, so segments must be shorter than what is kept.
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(milliseconds),
        "segment.ms": str(max(_MINUTE, milliseconds // 4)),
        "max.message.bytes": str(MAX_RECORD_BYTES),
    }


def _compacted(**more: str) -> dict[str, str]:
    return {"cleanup.policy": "compact", "segment.ms": str(10 * _MINUTE), **more}


def topics(pipeline: Pipeline) -> tuple[Topic, ...]:
    """Every topic the pipeline needs, in the order they are made.

    Work is kept for minutes only: an outage must not replay dead queries. ``results`` and
    ``dead-letters`` are read by people and other systems, so they stay longer.
    """
    name = pipeline.name
    data = [
        Topic(physical(name, QUERIES), 4, _deleted_after(60 * _MINUTE)),
        *(
            Topic(physical(name, work_topic(t.name)), t.slots, _deleted_after(10 * _MINUTE))
            for t in pipeline.tasks
        ),
        Topic(physical(name, OUTPUTS), pipeline.egress_partitions, _deleted_after(60 * _MINUTE)),
        Topic(physical(name, RESULTS), 4, _deleted_after(60 * _MINUTE)),
        Topic(physical(name, DEAD_LETTERS), 1, _deleted_after(7 * _DAY)),
    ]
    control = [
        Topic(physical(name, PLANS), 1, _compacted()),
        Topic(physical(name, REPORTS), 1, _deleted_after(2 * _MINUTE)),
        Topic(physical(name, COMMANDS), 1, _deleted_after(_DAY)),
        Topic(
            physical(name, COMMAND_RESULTS),
            1,
            _compacted(**{"cleanup.policy": "compact,delete", "retention.ms": str(_DAY)}),
        ),
    ]
    return (*control, *data)
