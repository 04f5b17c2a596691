"""Wait until egress has closed the queries noticed under another ``egress_partitions``.

Egress must take the notices of an input partition in the order of their places: a notice closes
everything below it. This order holds only within one slot of the outputs topic. After a change,
ingress sends a partition's notices to another slot, so it first waits until egress has closed the
queries that were noticed in the former slot.
"""

import logging
import time
from collections.abc import Mapping, Sequence

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition

from operators.egress.egress import upto_of
from schemas.effects import OUTPUTS
from schemas.pipeline import Pipeline
from streams.kafka.admin.topic_admin import partitions_of
from streams.kafka.egress_recovery import WAIT_S, notes_by_slot
from streams.kafka.kafka_client import consumer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.topic_contents import log_offsets
from streams.observers.journal import tell
from streams.topics import physical

log = logging.getLogger("headrace.role")
LEVELS = {"ingress.waits": logging.WARNING}

LOOK_S = 0.2  # interval between two reads of egress' commits


def await_former_notices(kafka: KafkaConfig, pipeline: Pipeline, places: Mapping[int, int]) -> None:
    """Return once ingress may notice the queries from ``places`` on, by input partition.

    If ``egress_partitions`` was changed, egress first closes the contents of the former slots.
    Raise ``BrokerError`` if the broker does not answer.
    """
    topic = physical(pipeline.name, OUTPUTS)
    slots = range(partitions_of(kafka, topic))
    if not _former(kafka, pipeline, places, slots):
        return
    ends = _ends(kafka, topic, slots)
    told = False
    while behind := [
        slot
        for slot, offset in _former(kafka, pipeline, places, slots).items()
        if offset < ends[slot]
    ]:
        if not told:
            told = True
            _tell(pipeline, behind)
        time.sleep(LOOK_S)


def _former(
    kafka: KafkaConfig, pipeline: Pipeline, places: Mapping[int, int], slots: Sequence[int]
) -> dict[int, int]:
    """Return egress' committed offsets in the slots that it has to close first."""
    topic = physical(pipeline.name, OUTPUTS)
    found = notes_by_slot(kafka, f"{pipeline.name}.egress", topic, slots)
    commits = {slot: found.get(slot, (0, "")) for slot in slots}
    closed = {slot: upto_of(note) for slot, (_, note) in commits.items()}
    former = former_slots(places, closed, pipeline.egress_partitions)
    return {slot: commits[slot][0] for slot in former}


def _ends(kafka: KafkaConfig, topic: str, slots: Sequence[int]) -> dict[int, int]:
    """Return the end of each slot; 0 for one without records."""
    reader = consumer(kafka, "headrace.reader")
    try:
        places = [TopicPartition(topic, slot) for slot in slots]
        begins = log_offsets(reader, places, OFFSET_BEGINNING, WAIT_S)
        ends = log_offsets(reader, places, OFFSET_END, WAIT_S)
        return {place[1]: end if end > begins[place] else 0 for place, end in ends.items()}
    finally:
        reader.close()


def _tell(pipeline: Pipeline, behind: Sequence[int]) -> None:
    topic = physical(pipeline.name, OUTPUTS)
    text = (
        f"ingress waits until egress finishes the records in partitions {list(behind)} of "
        f"{topic!r} from before egress_partitions became {pipeline.egress_partitions}"
    )
    event = "ingress.waits"
    tell(log, LEVELS[event], event, text, pipeline=pipeline.name, topic=topic, slots=list(behind))


def former_slots(
    places: Mapping[int, int], notes: Mapping[int, Mapping[int, int]], egress_partitions: int
) -> tuple[int, ...]:
    """Return the slots whose present records egress has to close before ingress begins.

    ``places`` are the first places that ingress reads, by input partition. ``notes`` are those of
    egress' commits for every slot that the topic has, empty for a slot without a commit. The slot
    with the highest note of a partition had its notices last. Without any note it is unknown, and
    every other slot counts.
    """
    found = {
        slot
        for partition, place in places.items()
        for slot in _last(partition, place, notes)
        if slot != partition % egress_partitions
    }
    return tuple(sorted(found))


def _last(partition: int, place: int, notes: Mapping[int, Mapping[int, int]]) -> list[int]:
    """Return the slots that may hold notices of a partition which are not closed.

    Two slots with the same note are both returned: egress has closed nothing since the change.
    """
    closed = {slot: note[partition] for slot, note in notes.items() if partition in note}
    highest = max(closed.values(), default=0)
    if highest >= place:
        return []
    return [slot for slot, upto in closed.items() if upto == highest] or list(notes)
