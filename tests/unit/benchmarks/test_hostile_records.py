"""Hostile records: every kind is readable or garbled in one sentence, in every input format."""

import numpy as np
import pytest

from benchmarks.hostile.hostile_records import KINDS
from schemas.effects import QUERIES
from schemas.records import Garbled, Query
from streams.codecs.wire import Fetched, decoder
from tests.builders import a_pipeline


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["raw", "avro"])
def test_a_hostile_record_is_a_query_or_garbled(kind: str, form: str) -> None:
    read = decoder(a_pipeline(input=form), QUERIES)
    rng = np.random.default_rng(1)
    for offset in range(20):
        value, headers = KINDS[kind](rng)
        fetched = Fetched("p.queries", 0, offset, 1.0, None, value, headers)  # type: ignore[arg-type]
        record = read(fetched)
        assert isinstance(record, Query | Garbled)
        if isinstance(record, Garbled):
            assert record.reason
            assert "\n" not in record.reason
