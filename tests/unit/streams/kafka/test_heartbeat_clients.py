"""The clients of reports and leases, which a quota on the id of the others does not delay."""

from queue import SimpleQueue
from typing import Any

import pytest

from streams.control_app import report_reader
from streams.control_app.report_reader import ReportReader
from streams.kafka.kafka_client import heartbeat_id
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.leases import egress_lease
from streams.kafka.leases.egress_lease import EgressLease

KAFKA = KafkaConfig("nobody:1")
OWN_ID = heartbeat_id(KAFKA)["client.id"]


class Enough(Exception):
    """No client is needed for more."""


class Made:
    """The ids of the clients that were made; the last one is not."""

    def __init__(self, most: int) -> None:
        self.ids: list[str] = []
        self._most = most

    def make(self, *_: Any, **settings: Any) -> Any:
        self.ids.append(settings.get("client.id", "that of others"))
        if len(self.ids) == self._most:
            raise Enough
        return self


def test_a_lease_is_renewed_and_read_back_under_their_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota on what roles read delayed the reading of the lease, and so every answer."""
    made = Made(2)
    for name in ("follower", "producer"):
        monkeypatch.setattr(egress_lease, name, made.make)
    lease = EgressLease(KAFKA, "p", (0,), "egress-0")
    with pytest.raises(Enough):
        lease.living_holder()
    assert made.ids == [OWN_ID] * 2


def test_the_control_app_reads_reports_under_their_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """It judged workers by late reports while a quota delayed what it read."""
    made, told = Made(1), SimpleQueue[BaseException]()
    monkeypatch.setattr(report_reader, "consumer", made.make)
    ReportReader(KAFKA, "p", lambda batch: None, told.put).start({})
    assert isinstance(told.get(timeout=10.0), Enough)
    assert made.ids == [OWN_ID]
