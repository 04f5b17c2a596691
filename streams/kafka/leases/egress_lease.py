"""The lease of a running egress: claim it, renew it, stamp answers with it, release it.

A thread of its own writes a renewal every ``RENEW_S`` and reads the ``leases`` topic back.
``streams/kafka/leases/lease_table.py`` has the rules.
"""

import os
import socket
import threading
import time
import uuid
from collections.abc import Sequence
from functools import partial

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)

from schemas.effects import LEASES, RESULTS
from streams.kafka.admin.topic_copies import copies_of
from streams.kafka.kafka_client import available, follower, heartbeat_id, producer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import FORBIDDEN, BrokerError, refusal
from streams.kafka.leases.lease_table import (
    LeaseHolder,
    LeaseRecord,
    encoded,
    read_lease,
)
from streams.kafka.leases.write_barrier import pass_barrier
from streams.kafka.missing_copies import MissingCopies
from streams.kafka.topic_contents import watermarks
from streams.topics import STAMPED_BY, Place, physical

RENEW_S = 0.4
LISTEN_S = 0.7  # a living holder renews within this
CLAIM_WITHIN_S = 60.0
ASK_S = 5.0  # between two questions for the copies of a topic that takes no claim
RECENT = 2000  # records; older ones belong to leases that expired long ago
POLL_S = 0.1
END_S = 5.0


class EgressLease:
    """The lease of ``partitions`` of the outputs topic, held by one process.

    The thread listens from construction. ``stamp_ms`` is the time stamp of answers on the topic
    ``stamped``, on the broker's clock. ``fenced``: the topic refuses old stamps.
    """

    fenced = True

    def __init__(
        self, config: KafkaConfig, pipeline: str, partitions: Sequence[int], name: str
    ) -> None:
        self._config = config
        self._topic, self.stamped = physical(pipeline, LEASES), physical(pipeline, RESULTS)
        self._lease = LeaseHolder(
            f"{name} on {socket.gethostname()}, process {os.getpid()}, {_random()}", partitions
        )
        self._barrier = f"{pipeline}.egress.{min(partitions, default=0)}"
        self._other = ""  # a living holder of one of these partitions
        self._quiet = threading.Event()  # has listened for ``LISTEN_S``
        self._claiming = threading.Event()
        self._held = threading.Event()  # the claim was read back
        self._ending = threading.Event()
        self._releasing = False
        self._error: BaseException | None = None
        self._writing = False  # a record waits for its confirmation
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()

    def living_holder(self) -> str:
        """Wait for ``LISTEN_S``; return another process that renews a lease of these partitions,
        "" if there is none."""
        self._quiet.wait()
        self.check()
        return self._other

    def acquire(self) -> None:
        """Claim the partitions; return once no answer of an earlier holder can be written.

        Wait while copies of the topic are missing. Raise ``BrokerError`` if the broker does not
        take the claim, ``LeaseLost`` if another process claims them meanwhile.
        """
        self._claiming.set()
        self._await_claim()
        self.check()
        self._ending.wait(max(0.0, self._lease.free_at_s - time.monotonic()))
        self.check()

    def _await_claim(self) -> None:
        missing = MissingCopies(partial(copies_of, self._config, timeout_s=ASK_S))
        began_s = time.monotonic()
        while not self._held.wait(ASK_S):
            now = time.monotonic()
            missing.ask(now, {self.place})
            if now - max(began_s, missing.missed_s) > CLAIM_WITHIN_S:
                raise BrokerError(
                    f"topic {self._topic!r} took no lease within {CLAIM_WITHIN_S:g} s; check that "
                    "the broker is well, then try again"
                )
        missing.look(time.monotonic(), None, tuple)  # logs that they are back

    def check(self) -> None:
        """Raise the error that ended the lease: ``LeaseLost`` or a ``BrokerError``."""
        if self._error is not None:
            raise self._error

    def settle(self) -> None:
        """Return once every answer written so far can be read; raise ``BrokerError``."""
        if self.fenced:
            pass_barrier(self._config, self._barrier, self.stamped)

    @property
    def holder(self) -> str:
        """The name of this process as a holder."""
        return self._lease.name

    @property
    def place(self) -> Place:
        """The partition that has the renewals."""
        return self._topic, 0

    @property
    def stamp_ms(self) -> int:
        """The time stamp of answers, on the broker's clock."""
        return int(self._lease.stamp_s * 1e3)

    @property
    def fresh(self) -> bool:
        """Whether the broker would take an answer with the present stamp."""
        return time.monotonic() < self._lease.fresh_until_s

    def end(self, *, confirmed: bool) -> None:
        """End the thread; with every answer ``confirmed`` a successor need not wait."""
        self._releasing = confirmed
        self._ending.set()
        self._thread.join(END_S)

    # ------------------------------------------------------------------ on its own thread

    def _run(self) -> None:
        try:
            self._keep()
        except Exception as error:  # noqa: BLE001 - `check` raises it
            self._error = error
        finally:
            for event in (self._ending, self._quiet, self._held):
                event.set()

    def _keep(self) -> None:
        own = heartbeat_id(self._config)
        reader = follower(self._config, "headrace.reader", **own)
        writer = producer(self._config, **own)
        try:
            low, high = watermarks(reader, TopicPartition(self._topic, 0))
            self._lease.next = max(low, high - RECENT)
            reader.assign([TopicPartition(self._topic, 0, self._lease.next)])
            self._listen(reader, high)
            self._hold(reader, writer)
        finally:
            writer.flush(1.0)
            reader.close()

    def _listen(self, reader: Consumer, history: int) -> None:
        """Fold the topic for ``LISTEN_S``; note another holder that writes after ``history``."""
        until_s = time.monotonic() + LISTEN_S
        while self._lease.next < history or time.monotonic() < until_s:
            if self._ending.is_set():
                return
            for record in self._read(reader, since=history):
                if self._lease.rivals(record):
                    self._other = record.holder
        self._quiet.set()

    def _hold(self, reader: Consumer, writer: Producer) -> None:
        next_s = 0.0
        while not self._ending.is_set():
            now_s = time.monotonic()
            if self._claiming.is_set() and now_s >= next_s and not self._writing:
                self._write(writer, self._lease.record())
                next_s = now_s + RENEW_S
            self._read(reader)
            writer.poll(0)
        if self._releasing and self._held.is_set():
            self._write(writer, self._lease.release())

    def _write(self, writer: Producer, record: LeaseRecord) -> None:
        def written(error: KafkaError | None, _: Message) -> None:
            self._writing = False
            if error is not None and error.code() in FORBIDDEN:
                self._error = BrokerError(
                    refusal(self._config, error, "Write", "topic", self._topic)
                )
                self._held.set()
                self._ending.set()

        self._writing = True
        writer.produce(self._topic, encoded(record), partition=0, on_delivery=written)

    def _read(self, reader: Consumer, since: int = 0) -> list[LeaseRecord]:
        """Fold what has arrived; return the records of others from offset ``since`` on.

        Raise ``BrokerError`` if the user may no longer read the topic.
        """
        found = []
        for message in available(reader, POLL_S, 500):
            if (error := message.error()) is not None:
                if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:  # not that of the group
                    raise BrokerError(refusal(self._config, error, "Read", "topic", self._topic))
                continue  # librdkafka retries by itself
            kind, at_ms = message.timestamp()
            offset, at_s = message.offset(), at_ms / 1e3
            record = read_lease(message.value() or b"")
            if record is not None and record.holder == self.holder:
                self._check_stamped(kind)
            self._lease.take(record, offset, at_s, time.monotonic())
            if self._lease.held:
                self._held.set()
            if record is not None and offset >= since and record.holder != self.holder:
                found.append(record)
        return found

    def _check_stamped(self, kind: int) -> None:
        """Check that the broker stamped this lease: by another clock the broker would take answers
        of a lease that has expired, or refuse those of a valid one."""
        if kind != TIMESTAMP_LOG_APPEND_TIME:
            raise BrokerError(
                f"topic {self._topic!r} has the time stamps of its writers, so leases of egress do "
                f"not hold; run `kafka-configs --alter --topic {self._topic} --add-config "
                f"{STAMPED_BY}=LogAppendTime`"
            )


def _random() -> str:
    return uuid.uuid4().hex[:8]
