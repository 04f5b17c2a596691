"""Hostile records: in every input format each kind is readable or garbled with one sentence."""

from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.hostile.hostile_records import KINDS
from benchmarks.schema_registry import a_registry
from headrace.client.formats import writer_of
from schemas.effects import QUERIES
from schemas.pipeline import Pipeline
from schemas.records import Garbled, Query
from streams.codecs.wire import Fetched, decoder
from tests.builders import a_pipeline


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    pytest.importorskip("authlib", reason="the extra `registry` is not installed")
    with a_registry() as address:
        yield address


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["raw", "avro"])
def test_a_hostile_record_is_a_query_or_garbled(kind: str, form: str) -> None:
    check(kind, a_pipeline(input=form))


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_record_is_a_query_or_garbled_with_a_schema_registry(
    kind: str, registry: str
) -> None:
    pipeline = a_pipeline(input="confluent", schema_registry=registry)
    writer_of(pipeline)(Query(payload=b"7"))  # registers the schema of queries
    check(kind, pipeline)


def check(kind: str, pipeline: Pipeline) -> None:
    read = decoder(pipeline, QUERIES)
    rng = np.random.default_rng(1)
    for offset in range(20):
        value, headers = KINDS[kind](rng)
        fetched = Fetched("p.queries", 0, offset, 1.0, None, value, headers)  # type: ignore[arg-type]
        record = read(fetched)
        assert isinstance(record, Query | Garbled)
        if isinstance(record, Garbled):
            assert record.reason
            assert "\n" not in record.reason
