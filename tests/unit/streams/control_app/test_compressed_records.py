"""The control app's client reads records in every compression that producers and topics choose.

Without its optional libraries it raised an error, which ended the control app at every start.
"""

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

KINDS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}  # as in Kafka's record batches


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_compressed_command_is_read(kind: int) -> None:
    value = b'{"action": "replan"}' * 100
    batch = DefaultRecordBatchBuilder(
        magic=2, compression_type=kind, is_transactional=0, producer_id=-1, producer_epoch=-1,
        base_sequence=-1, batch_size=1 << 20,
    )  # fmt: skip
    batch.append(0, timestamp=0, key=None, value=value, headers=[])
    built = bytes(batch.build())
    assert len(built) < len(value)
    found = MemoryRecords(built).next_batch()
    assert found is not None
    assert [record.value for record in found] == [value]
