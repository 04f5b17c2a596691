"""Does the input topic still have as many partitions as when this role began?

Partitions that are added are nobody's until ingress begins anew: it takes its share of them then.
"""

import threading
from collections.abc import Callable

from headrace.errors import PartitionsChanged
from streams.kafka.kafka_client import BrokerError, KafkaConfig, partitions

LOOK_S = 30.0


def watch_partitions(
    kafka: KafkaConfig,
    topic: str,
    count: int,
    fail: Callable[[BaseException], None],
    every_s: float = LOOK_S,
) -> None:
    """Look at a topic's partitions from now on, on a thread of its own; ``fail`` hears of another
    number than ``count``, once."""

    def look() -> None:
        while True:
            threading.Event().wait(every_s)
            try:
                now = partitions(kafka).get(topic, count)
            except BrokerError:
                continue  # it is away
            if now != count:
                fail(
                    PartitionsChanged(
                        f"topic {topic!r} has {now} partitions and had {count} when this role "
                        "began; it begins anew with its share of them"
                    )
                )
                return

    threading.Thread(target=look, name="partitions", daemon=True).start()
