"""Watch the input topic for a changed number of partitions, and for another topic of its name.

Added partitions have no reader until ingress restarts and takes its share of them. The offsets
alone do not show a topic that was made anew and has outgrown the old one; where they go back, they
do not show whether it was made anew or has lost its end.
"""

import threading
from collections.abc import Callable

from headrace.errors import InputMadeAnew, PartitionsChanged
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.kafka.topic_admin import TopicLook, look_at

LOOK_S = 1.0
CHECK_S = 3.0  # ingress decides nothing meanwhile, and ends where it stands still for 5 s


def watch_input(
    kafka: KafkaConfig,
    topic: str,
    seen: TopicLook,
    fail: Callable[[BaseException], None],
    every_s: float = LOOK_S,
) -> None:
    """Look at a topic on a thread; call ``fail`` once if it is no longer as ``seen``.

    ``fail`` gets an ``InputMadeAnew`` or a ``PartitionsChanged``; the thread then ends. A broker
    that is away, or does not know the topic, changes nothing.
    """

    def look() -> None:
        looks = look_at(kafka, topic)
        while True:
            threading.Event().wait(every_s)
            error = changed(topic, seen, next(looks))
            if error is not None:
                fail(error)
                return

    threading.Thread(target=look, name="input-watch", daemon=True).start()


def check_input(kafka: KafkaConfig, topic: str, seen: TopicLook) -> None:
    """Return if a topic whose offsets went back is still the one that was ``seen``.

    Raises ``InputMadeAnew`` or ``PartitionsChanged`` if it is not, and ``BrokerError`` if the
    broker does not say so within ``CHECK_S``.
    """
    now = next(look_at(kafka, topic, CHECK_S))
    if now is None:
        raise BrokerError(
            f"the offsets of topic {topic!r} went back, and no broker says whether it was made "
            "anew; start this role anew"
        )
    error = changed(topic, seen, now)
    if error is not None:
        raise error


def changed(
    topic: str, seen: TopicLook, now: TopicLook | None
) -> InputMadeAnew | PartitionsChanged | None:
    """Return what became of the topic since it was ``seen``, None for nothing.

    An empty id, of a broker that has none, tells nothing.
    """
    if now is None:
        return None
    if seen.id and now.id and now.id != seen.id:
        return InputMadeAnew(
            f"topic {topic!r} was made anew while this role read it; it begins anew with the "
            "topic's first record"
        )
    if now.partitions != seen.partitions:
        return PartitionsChanged(
            f"topic {topic!r} has {now.partitions} partitions and had {seen.partitions} when this "
            "role began; it begins anew with its share of them"
        )
    return None
