"""Watch the input topic for a changed number of partitions, and for another topic of its name.

Added partitions have no reader until ingress restarts and takes its share of them.
"""

import contextlib
import threading
from collections.abc import Callable

from headrace.errors import InputMadeAnew, PartitionsChanged
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.kafka.topic_admin import partitions, topic_id_on

LOOK_S = 10.0


def watch_partitions(
    kafka: KafkaConfig,
    topic: str,
    count: int,
    fail: Callable[[BaseException], None],
    every_s: float = LOOK_S,
) -> None:
    """Poll a topic's partition count on a thread; call ``fail`` once if it differs from ``count``.

    ``fail`` gets a ``PartitionsChanged``; polling then ends.
    """

    def changed() -> PartitionsChanged | None:
        now = partitions(kafka).get(topic, count)
        if now == count:
            return None
        return PartitionsChanged(
            f"topic {topic!r} has {now} partitions and had {count} when this role began; it begins "
            "anew with its share of them"
        )

    _poll("partitions", changed, fail, every_s)


def watch_topic_id(
    kafka: KafkaConfig,
    topic: str,
    topic_id: str,
    fail: Callable[[BaseException], None],
    every_s: float = LOOK_S,
) -> None:
    """Poll a topic's id on a thread; call ``fail`` once if it is no longer ``topic_id``.

    ``fail`` gets an ``InputMadeAnew``. The offsets alone do not show a topic that was made anew and
    has outgrown the old one.
    """

    def changed() -> InputMadeAnew | None:
        now = topic_id_on(kafka, topic)
        if not topic_id or now in ("", topic_id):
            return None
        return InputMadeAnew(
            f"topic {topic!r} was made anew while this role read it; it begins anew with the "
            "topic's first record"
        )

    _poll("topic-id", changed, fail, every_s)


def _poll(
    name: str,
    changed: Callable[[], BaseException | None],
    fail: Callable[[BaseException], None],
    every_s: float,
) -> None:
    """Call ``changed`` on a thread until it returns an error, and pass that to ``fail``."""

    def look() -> None:
        while True:
            threading.Event().wait(every_s)
            with contextlib.suppress(BrokerError):  # the broker is away
                if (error := changed()) is not None:
                    fail(error)
                    return

    threading.Thread(target=look, name=name, daemon=True).start()
