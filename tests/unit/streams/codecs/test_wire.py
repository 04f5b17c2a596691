"""The records on each topic, in every format that a pipeline file can name."""

import json
from dataclasses import replace

import pytest
from msgspec import structs

from headrace.client.formats import read_answer
from schemas.codec.path_tree import FEW_BRANCHES
from schemas.codec.single_object import decode, encode, write_as
from schemas.effects import QUERIES, RESULTS, Send
from schemas.enumerations import ReasonCode
from schemas.pipeline import Pipeline, Policy, Task, Variant
from schemas.records import Answer, Garbled, Origin, Query
from streams.codecs import schema_registry
from streams.codecs.size_gate import fitting
from streams.codecs.wire import Fetched, decoder, encoder, origins
from streams.kafka.kafka_errors import BrokerError
from streams.topics import MAX_RECORD_BYTES
from tests.builders import a_hop, an_answer, an_end

PIPELINE = Pipeline(
    name="p",
    slo_s=1.0,
    tasks=(Task(name="a", variants=(Variant(task="a", name="v", operator="m:C"),)),),
    policies=(Policy(name="static"),),
    policy="static",
)
ANSWER = Answer(
    id="q", origin=Origin(0, 7), outcome="answered", result="12345",
    created_s=1.0, deadline_s=2.0, answered_s=1.5,
)  # fmt: skip


def fetched(value: bytes | None) -> Fetched:
    return Fetched("p.queries", 0, 7, 1.0, None, value, None)


def test_a_raw_value_is_the_payload() -> None:
    assert decoder(PIPELINE, QUERIES)(fetched(b"image")) == Query(payload=b"image")


def test_an_avro_query_is_read_as_it_was_written() -> None:
    query = Query(payload=b"image", id="q", slo_class="bulk")
    assert decoder(replace(PIPELINE, input="avro"), QUERIES)(fetched(encode(query))) == query


def test_another_record_where_a_query_belongs_is_garbled() -> None:
    found = decoder(replace(PIPELINE, input="avro"), QUERIES)(fetched(encode(ANSWER)))
    assert isinstance(found, Garbled)
    assert "Answer record where a Query was expected" in found.reason


@pytest.mark.parametrize("value", [b"", None, b"nonsense", b"\xc3\x01short"])
def test_bytes_that_are_no_record_are_garbled(value: bytes | None) -> None:
    assert isinstance(decoder(replace(PIPELINE, input="avro"), QUERIES)(fetched(value)), Garbled)


def test_a_raw_query_whose_headers_cannot_be_read_is_garbled_and_an_avro_one_is_read() -> None:
    query = Query(payload=b"image", id="q")
    record = structs.replace(fetched(encode(query)), fault="the name of a header is not UTF-8")
    found = decoder(PIPELINE, QUERIES)(record)
    assert isinstance(found, Garbled)
    assert (found.reason, found.value) == (record.fault, record.value)
    assert decoder(replace(PIPELINE, input="avro"), QUERIES)(record) == query


@pytest.mark.parametrize("form", ["raw", "avro"])
def test_a_record_that_could_not_be_fetched_is_garbled_with_the_reason(form: str) -> None:
    record = structs.replace(fetched(None), fault="its batch cannot be decompressed")
    found = decoder(replace(PIPELINE, input=form), QUERIES)(record)
    assert isinstance(found, Garbled)
    assert found.reason == record.fault


def test_answers_are_written_as_json_where_the_file_says_so() -> None:
    written = encoder(replace(PIPELINE, results="json"), RESULTS)(ANSWER)
    assert json.loads(written)["result"] == "12345"


@pytest.mark.parametrize("form", ["avro", "json"])
def test_an_answer_that_fits_no_record_says_so_instead(form: str) -> None:
    # As base64 and digits, JSON needs more bytes than Avro, so egress cannot tell from the value.
    large = structs.replace(ANSWER, result=bytes(MAX_RECORD_BYTES), late=True)
    write = encoder(replace(PIPELINE, results=form), RESULTS)
    ((_, written),) = fitting(Send(RESULTS, large), write, 4)
    answer = read_answer(written)
    assert len(written) < 1000
    assert answer == structs.replace(
        ANSWER,
        outcome="failed",
        task="egress",
        result=None,
        reason=answer.reason,
        reason_code=ReasonCode.COMBINE,
    )
    assert "MiB fits no record (at most 8)" in answer.reason


BRANCHED = an_answer(
    paths=((a_hop(task="a"), a_hop()), (a_hop(task="a"), a_hop())),
    ends=(an_end("answered", "read"),) * 2,
)


@pytest.mark.parametrize("form", ["avro", "json"])
def test_a_hop_that_branches_share_is_written_once_and_read_as_paths(form: str) -> None:
    trees = replace(PIPELINE, results=form, answer_paths="tree")
    written = encoder(trees, RESULTS)(BRANCHED)
    assert written.count(b"idle") == 2
    assert read_answer(written) == BRANCHED


@pytest.mark.parametrize("form", ["avro", "json"])
def test_few_branches_are_reported_one_by_one_and_many_as_a_tree(form: str) -> None:
    write = encoder(replace(PIPELINE, results=form), RESULTS)
    many = structs.replace(
        BRANCHED, paths=BRANCHED.paths * FEW_BRANCHES, ends=BRANCHED.ends * FEW_BRANCHES
    )
    assert write(BRANCHED).count(b"idle") == 4
    assert write(many).count(b"idle") == 2
    assert read_answer(write(many)) == many


def test_answers_tell_every_branch_or_nothing_of_them_where_the_file_says_so() -> None:
    every, no = (encoder(replace(PIPELINE, answer_paths=kind), RESULTS) for kind in ("all", "none"))
    assert decode(every(BRANCHED)) == BRANCHED
    assert decode(no(BRANCHED)) == structs.replace(BRANCHED, paths=(), ends=())
    dropped = structs.replace(BRANCHED, outcome="dropped")
    assert decode(no(dropped)) == dropped  # for ``explain``


@pytest.mark.parametrize("form", ["avro", "json"])
def test_readers_of_release_6_get_paths(form: str) -> None:
    write_as(6)
    try:
        written = encoder(replace(PIPELINE, results=form, answer_paths="tree"), RESULTS)(BRANCHED)
    finally:
        write_as(None)
    assert written.count(b"idle") == 4
    assert read_answer(written) == BRANCHED


def test_confluent_framing_goes_through_a_registry() -> None:
    pytest.importorskip("authlib", reason="the extra `registry` is not installed")
    confluent = replace(
        PIPELINE, input="confluent", results="confluent", schema_registry="mock://wire"
    )
    written = encoder(confluent, RESULTS)(ANSWER)
    assert written[:1] == b"\0"
    found = decoder(confluent, QUERIES)(fetched(b"\0\0\0\0\x63rest"))
    assert isinstance(found, Garbled)
    assert "no schema with the id 99" in found.reason


@pytest.mark.parametrize("before", ["avro", "json", "confluent"])
@pytest.mark.parametrize("now", ["avro", "json", "confluent"])
def test_egress_knows_its_answers_of_every_format(
    before: str, now: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if before == "confluent":
        pytest.importorskip("authlib", reason="the extra `registry` is not installed")
        # Each client is a registry of its own.
        registry = schema_registry._client("mock://formats", 1.0, retries=0)
        monkeypatch.setattr(schema_registry, "_client", lambda url, within_s, *, retries: registry)
    pipeline = replace(PIPELINE, schema_registry="mock://formats")
    written = encoder(replace(pipeline, results=before), RESULTS)(ANSWER)
    assert origins(replace(pipeline, results=now))(written) == [(0, 7)]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{}",
        b"\0",
        b"\0five",
        b"\xc3\x01short",
        encode(Query(payload=b"x")),
        b'{"origin": {"partition": 1e999, "offset": 0}}',
    ],
)
def test_a_foreign_record_among_the_results_has_no_origin(value: bytes) -> None:
    assert origins(PIPELINE)(value) == []


@pytest.mark.parametrize("release", [1, 2, 3, 6, 7])
def test_egress_knows_its_answers_in_confluents_framing_without_their_registry(
    release: int,
) -> None:
    """A registry that is lost or replaced by an empty one used to make them foreign records."""
    write_as(release)
    try:
        written = b"\0\0\0\0\x07" + encode(ANSWER)[10:]
    finally:
        write_as(None)
    assert origins(PIPELINE)(written) == [(0, 7)]


def test_answers_of_unknown_schemas_in_confluents_framing_need_their_registry() -> None:
    with pytest.raises(BrokerError, match=r"p\.results has answers in Confluent's framing.*URL"):
        origins(PIPELINE)(b"\0\0\0\0\x01rest")
