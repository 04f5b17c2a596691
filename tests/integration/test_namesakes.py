"""Of two nodes with one name, the second does not start."""

import time
from collections.abc import Callable
from functools import partial
from threading import Event, Thread

import pytest

from headrace.client.topic_clients import Tail
from headrace.errors import NameTaken
from headrace.roles.namesakes import Namesakes
from schemas.codec.single_object import encode
from streams.fencing import Replaced
from streams.kafka.admin.topic_admin import ensure_topics
from streams.kafka.kafka_client import producer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.topics import topics
from tests.builders import a_pipeline
from tests.control_world import an_ingress_report

pytestmark = pytest.mark.kafka

PIPELINE = a_pipeline(name="postcode")


@pytest.fixture
def config(broker: str) -> KafkaConfig:
    config = KafkaConfig(broker)
    ensure_topics(config, topics(PIPELINE))
    return config


@pytest.fixture
def reports(config: KafkaConfig) -> Callable[[], Tail]:
    return partial(Tail, config, "headrace.reports")


class Other:
    """A node that has reported, and reports every 0.2 s until it is ended; its host's clock is
    ``behind_s``."""

    def __init__(self, config: KafkaConfig, name: str, behind_s: float = 0.0) -> None:
        self._ended = Event()
        self._producer = producer(config)
        self._name, self._behind_s = name, behind_s
        self._say()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(0.2):
            self._say()

    def _say(self) -> None:
        report = an_ingress_report(time.time() - self._behind_s, node=self._name)
        self._producer.produce("headrace.reports", encode(report), partition=0)
        self._producer.flush(5)

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


class Told:
    """The errors that a node received."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.heard = Event()

    def __call__(self, error: BaseException) -> None:
        self.errors.append(error)
        self.heard.set()


@pytest.mark.parametrize("behind_s", [0.0, 3600.0])
def test_the_name_of_a_live_node_is_refused_until_that_node_ends(
    config: KafkaConfig, reports: Callable[[], Tail], behind_s: float
) -> None:
    other = Other(config, "ingress-0", behind_s)
    with pytest.raises(NameTaken, match="a node named 'ingress-0' of pipeline postcode reports"):
        Namesakes(reports, "postcode", ["ingress-0"]).check()
    Namesakes(reports, "postcode", ["ingress-1"]).check()
    other.end()
    Namesakes(reports, "postcode", ["ingress-0"]).check()


def test_of_two_that_begin_at_once_the_younger_one_ends(
    config: KafkaConfig, reports: Callable[[], Tail]
) -> None:
    told = Told()

    younger = Namesakes(reports, "postcode", ["ingress-0"])
    older = Namesakes(reports, "postcode", ["ingress-0"])
    younger.check()
    older.check()
    other = Other(config, "ingress-0")  # its incarnation is 1.0
    younger.watch(2.0, told)
    assert told.heard.wait(5)
    older.watch(0.5, told)  # it has most likely heard the other by now
    other.end()
    assert [type(error) for error in told.errors] == [NameTaken]


def assert_ends_for_another(config: KafkaConfig, reports: Callable[[], Tail]) -> None:
    """Assert that a node that was silent ends once it hears another node of its name."""
    told = Told()
    mine = Namesakes(reports, "postcode", ["ingress-0"])
    mine.check()
    mine.watch(0.5, told)
    other = Other(config, "ingress-0")  # its incarnation is 1.0
    mine.look_again()
    assert told.heard.wait(30)
    other.end()
    assert [type(error) for error in told.errors] == [Replaced]


def test_a_node_that_was_silent_and_hears_another_one_of_its_name_ends(
    config: KafkaConfig, reports: Callable[[], Tail]
) -> None:
    assert_ends_for_another(config, reports)


def test_a_node_that_was_silent_listens_again_once_a_broker_answers(
    config: KafkaConfig, reports: Callable[[], Tail]
) -> None:
    outage = iter([False, True])

    def interrupted() -> Tail:
        if next(outage, False):
            raise BrokerError("no Kafka broker answers")
        return reports()

    assert_ends_for_another(config, interrupted)
