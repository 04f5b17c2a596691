"""Topic ids, to which the client keeps references."""

import ctypes
import sys
from types import SimpleNamespace

from confluent_kafka import Uuid

from streams.kafka.admin.topic_admin import release_id


def references(description: SimpleNamespace) -> int:
    # Not within an assertion, since pytest keeps references to values that it shows.
    return sys.getrefcount(description.topic_id)


def test_a_reference_too_many_is_released_and_no_other() -> None:
    description = SimpleNamespace(topic_id=Uuid(1, 2))
    proper = references(description)
    release_id(description)
    kept = references(description)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(description.topic_id))
    leaked = references(description)
    release_id(description)
    assert (kept, leaked, references(description)) == (proper, proper + 1, proper)
    assert str(description.topic_id) == str(Uuid(1, 2))


def test_a_topic_of_a_broker_without_ids_has_none_to_release() -> None:
    release_id(SimpleNamespace(topic_id=None))
