"""A log loses its end while its reader is down, as after a power failure of their host."""

import os
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from headrace.broker import local_broker as local
from streams.kafka.kafka_client import admin, producer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.transport import KafkaTransport

pytestmark = pytest.mark.kafka

WITHIN_S = 60.0
OLD, KEPT = 30, 20  # records before the failure, and those of them behind it


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("truncated")
    with local.borrow(home):
        yield home
        local.start(home)  # the one that is stopped


def write(broker: str, topic: str, names: list[str]) -> None:
    writer = producer(KafkaConfig(broker))
    for name in names:
        writer.produce(topic, name.encode(), partition=0)
        assert writer.flush(WITHIN_S) == 0  # a batch for each: the file is cut between two


def read(broker: str, topic: str, count: int) -> list[str]:
    """Read records on from the commit, and commit behind them."""
    transport = KafkaTransport(KafkaConfig(broker), "reader", validates=True)
    transport.assign([(topic, 0)], [], commits=True)
    found: list[str] = []
    until_s = time.monotonic() + WITHIN_S
    while len(found) < count and time.monotonic() < until_s:
        for each in transport.fetch(0.1):
            found.append((each.value or b"").decode())
            transport.done((topic, 0), each.offset + 1, "")
        transport.end_turn(time.time())
    transport.close()
    return found


def cut(log: Path, offset: int) -> None:
    """Cut a segment before the batch that begins at an offset."""
    data, at = log.read_bytes(), 0
    while int.from_bytes(data[at : at + 8]) < offset:
        at += 12 + int.from_bytes(data[at + 8 : at + 12])
    with log.open("r+b") as file:
        file.truncate(at)


# Fewer new records than were lost: the commit is beyond the log's end. More: it is within it.
@pytest.mark.parametrize("fresh", [5, 15])
def test_a_reader_goes_on_with_the_first_record_behind_the_cut(home: Path, fresh: int) -> None:
    topic, old = f"cut-{uuid.uuid4().hex[:8]}", [f"old-{n}" for n in range(OLD)]
    broker = local.start(home)
    client = admin(KafkaConfig(broker.bootstrap))
    client.create_topics([NewTopic(topic, 1)])[topic].result(WITHIN_S)
    write(broker.bootstrap, topic, old)
    assert read(broker.bootstrap, topic, OLD) == old
    os.kill(broker.pid, signal.SIGKILL)
    while local.status(home) is not None:
        time.sleep(0.05)  # the kernel's pace
    (log,) = home.glob(f"**/{topic}-0/{0:020}.log")
    cut(log, KEPT)
    broker = local.start(home)
    new = [f"new-{n}" for n in range(fresh)]
    write(broker.bootstrap, topic, new)
    assert read(broker.bootstrap, topic, fresh) == new
