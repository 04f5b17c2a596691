"""Watch the input topic for a changed number of partitions.

Added partitions have no reader until ingress restarts and takes its share of them.
"""

import threading
from collections.abc import Callable

from headrace.errors import PartitionsChanged
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.kafka.topic_admin import partitions

LOOK_S = 30.0


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

    def look() -> None:
        while True:
            threading.Event().wait(every_s)
            try:
                now = partitions(kafka).get(topic, count)
            except BrokerError:
                continue  # the broker is away
            if now != count:
                fail(
                    PartitionsChanged(
                        f"topic {topic!r} has {now} partitions and had {count} when this role "
                        "began; it begins anew with its share of them"
                    )
                )
                return

    threading.Thread(target=look, name="partitions", daemon=True).start()
