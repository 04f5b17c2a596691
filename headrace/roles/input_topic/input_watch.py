"""Watch the input topic for a changed number of partitions, and for its recreation.

Added partitions have no reader until ingress restarts and takes its share of them. Offsets alone do
not reveal a recreated topic that has outgrown the old one. If they go back, they do not show
whether the topic was recreated or truncated.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from headrace.errors import InputMadeAnew, PartitionsChanged
from streams.kafka.admin.topic_admin import TopicLook, look_at
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError

LOOK_S = 1.0
CHECK_S = 3.0  # ingress waits meanwhile, and ends if it stands still for 5 s
ONE_S = 1.0  # longest wait for one look of a check
AGREE = 2  # looks that show the same topic, ``AGAIN_S`` apart
AGAIN_S = 0.2


@contextmanager
def watched_input(
    kafka: KafkaConfig,
    topic: str,
    seen: TopicLook,
    fail: Callable[[BaseException], None],
    every_s: float = LOOK_S,
    within_s: float = CHECK_S,
) -> Iterator[None]:
    """Look at a topic on a thread while the block runs; call ``fail`` once if it is no longer as
    ``seen``.

    ``fail`` gets an ``InputMadeAnew`` or a ``PartitionsChanged``, or an error of the client; the
    thread then ends. A broker that is unreachable for ``within_s``, or does not know the topic,
    changes nothing.
    """
    over = threading.Event()

    def look() -> None:
        try:
            looks = look_at(kafka, topic, within_s)
            while not over.wait(every_s):
                error = changed(topic, seen, next(looks))
                if error is not None:
                    fail(error)
                    return
        except Exception as error:  # noqa: BLE001 - the role's thread raises it
            fail(error)

    thread = threading.Thread(target=look, name="input-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        # An answer that reaches the client library while the interpreter ends crashes the process.
        over.set()
        thread.join(within_s + 1.0)


def check_input(kafka: KafkaConfig, topic: str, seen: TopicLook) -> None:
    """Return if a topic whose offsets went back is still the one that was ``seen``.

    Raises ``InputMadeAnew`` or ``PartitionsChanged`` if it is not, and ``BrokerError`` if the
    broker does not confirm it within ``CHECK_S``.
    """
    until_s = time.monotonic() + CHECK_S
    error = verdict(topic, seen, _looks(kafka, topic, until_s))
    if error is not None:
        raise error


def _looks(kafka: KafkaConfig, topic: str, until_s: float) -> Iterator[TopicLook | None]:
    for look in look_at(kafka, topic, ONE_S):
        yield look
        if time.monotonic() > until_s:
            return
        time.sleep(AGAIN_S)


def verdict(
    topic: str, seen: TopicLook, looks: Iterable[TopicLook | None]
) -> InputMadeAnew | PartitionsChanged | BrokerError | None:
    """Return the change of a topic whose offsets went back, by several looks; None if there is
    none.

    One look does not prove that the topic is the same: a broker's metadata may be stale.
    """
    same = 0
    for now in looks:
        error = changed(topic, seen, now)
        if error is not None:
            return error
        same += now is not None
        if same == AGREE:
            return None
    return BrokerError(
        f"the offsets of topic {topic!r} went back, and no broker says whether it was made anew; "
        "start this role anew"
    )


def changed(
    topic: str, seen: TopicLook, now: TopicLook | None
) -> InputMadeAnew | PartitionsChanged | None:
    """Return the change of the topic since it was ``seen``, or None.

    An empty id, from a broker without topic ids, proves nothing.
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
