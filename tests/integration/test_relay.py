import multiprocessing

import pytest

from benchmarks.relay import measure_relay
from streams.kafka.admin.topic_admin import partitions
from streams.kafka.kafka_config import KafkaConfig

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("rate", [100.0, None])
def test_the_bare_relay_loses_nothing_and_leaves_nothing(broker: str, rate: float | None) -> None:
    seen = measure_relay(broker, rate, 1.0, warm_seconds=1.0)
    assert seen.sent == seen.answered > 50
    assert 0 < seen.p50_ms <= seen.p99_ms
    assert seen.cpu_ms_per_query > 0
    assert [name for name in partitions(KafkaConfig(broker)) if name.startswith("relay-")] == []
    assert multiprocessing.active_children() == []
