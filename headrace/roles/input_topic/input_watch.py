"""Watch the input topic for a changed number of partitions, its deletion and its recreation.

Added partitions have no reader until ingress restarts and takes its share of them. Offsets alone do
not reveal a recreated topic that has outgrown the old one. If they go back, they do not show
whether the topic was recreated or truncated.

A deleted topic is recreated, as every other topic is: by the start of a role that the loss ended.
Ingress only reads the input topic, so the loss does not end it. It must not end before the topic
exists again: without its commit the next start could give new queries the places of old ones.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from headrace.errors import InputRecreated, PartitionsChanged
from schemas.effects import QUERIES
from schemas.pipeline import Pipeline
from streams.kafka.admin.topic_admin import UNKNOWN_TOPIC, TopicLook, ensure_topics, look_at
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.observers.journal import tell
from streams.topics import physical, topics

log = logging.getLogger("headrace.broker")
LEVELS = {"input.deleted": logging.ERROR}

LOOK_S = 1.0
CHECK_S = 3.0  # ingress waits meanwhile, and ends if it stands still for 5 s
ONE_S = 1.0  # longest wait for one look of a check
AGREE = 2  # looks that show the same topic, ``AGAIN_S`` apart
AGAIN_S = 0.2
# A broker that has just started does not know every topic. Whoever deletes the topic to create it
# with other settings has this time.
GONE_S = 10.0


@contextmanager
def watched_input(
    kafka: KafkaConfig,
    topic: str,
    seen: TopicLook,
    fail: Callable[[BaseException], None],
    every_s: float = LOOK_S,
    within_s: float = CHECK_S,
    gone_s: float = GONE_S,
    restore: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Look at a topic on a thread while the block runs; call ``fail`` once if it is no longer as
    ``seen``, and ``restore`` whenever no broker has known it for ``gone_s``.

    ``fail`` gets an ``InputRecreated`` or a ``PartitionsChanged``, or an error of the client; the
    thread then ends. A broker that is unreachable for ``within_s`` changes nothing.
    """
    over, absence = threading.Event(), Absence(gone_s)

    def look() -> None:
        try:
            looks = look_at(kafka, topic, within_s)
            while not over.wait(every_s):
                now = next(looks)
                error = topic_change(topic, seen, now)
                if error is not None:
                    fail(error)
                    return
                if absence.lasts(now, time.monotonic()):
                    restore()
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


class Absence:
    """Finds that no broker has known a topic for ``gone_s``."""

    def __init__(self, gone_s: float) -> None:
        self._gone_s = gone_s
        self._since_s: float | None = None

    def lasts(self, look: TopicLook | None, now: float) -> bool:
        """Return whether it lasts at a look, once per ``gone_s``. Looks without an answer of a
        broker do not count."""
        if look is None:
            return False
        if look != UNKNOWN_TOPIC:
            self._since_s = None
        elif self._since_s is None:
            self._since_s = now
        elif now - self._since_s >= self._gone_s:
            self._since_s = now
            return True
        return False


def restore_input(kafka: KafkaConfig, pipeline: Pipeline, timeout_s: float = CHECK_S) -> None:
    """Make the input topic anew if it is missing; log the deletion, and why it cannot be made."""
    topic = physical(pipeline.name, QUERIES)
    end = "it was recreated, without the queries that it held"
    try:
        ensure_topics(kafka, (each for each in topics(pipeline) if each.name == topic), timeout_s)
    except BrokerError as error:
        end = f"no query can be sent: {error}"
    text = f"topic {topic!r} was deleted while this role read it; {end}"
    tell(log, LEVELS["input.deleted"], "input.deleted", text, topic=topic)


def check_input(kafka: KafkaConfig, topic: str, seen: TopicLook) -> None:
    """Return if a topic whose offsets went back is still the one that was ``seen``.

    Raises ``InputRecreated`` or ``PartitionsChanged`` if it is not, and ``BrokerError`` if the
    broker does not confirm it within ``CHECK_S``.
    """
    until_s = time.monotonic() + CHECK_S
    error = agreed_change(topic, seen, _looks(kafka, topic, until_s))
    if error is not None:
        raise error


def _looks(kafka: KafkaConfig, topic: str, until_s: float) -> Iterator[TopicLook | None]:
    for look in look_at(kafka, topic, ONE_S):
        yield look
        if time.monotonic() > until_s:
            return
        time.sleep(AGAIN_S)


def agreed_change(
    topic: str, seen: TopicLook, looks: Iterable[TopicLook | None]
) -> InputRecreated | PartitionsChanged | BrokerError | None:
    """Return the change of a topic whose offsets went back, by several looks; None if there is
    none.

    One look does not prove that the topic is the same: a broker's metadata may be stale.
    """
    same = 0
    for now in looks:
        error = topic_change(topic, seen, now)
        if error is not None:
            return error
        same += now is not None and now != UNKNOWN_TOPIC
        if same == AGREE:
            return None
    return BrokerError(
        f"the offsets of topic {topic!r} went back, and no broker says whether it was recreated; "
        "restart this role"
    )


def topic_change(
    topic: str, seen: TopicLook, now: TopicLook | None
) -> InputRecreated | PartitionsChanged | None:
    """Return the change of the topic since it was ``seen``, or None.

    An empty id, from a broker without topic ids, proves nothing. Nor does a broker that does not
    know the topic, as one that has just started.
    """
    if now is None or now == UNKNOWN_TOPIC:
        return None
    if seen.id and now.id and now.id != seen.id:
        return InputRecreated(
            f"topic {topic!r} was recreated while this role read it; it begins anew with the "
            "topic's first record"
        )
    if now.partitions != seen.partitions:
        return PartitionsChanged(
            f"topic {topic!r} has {now.partitions} partitions and had {seen.partitions} when this "
            "role began; it begins anew with its share of them"
        )
    return None
