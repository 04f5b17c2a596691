import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec.label_form import KEYS, label_of
from schemas.codec.single_object import encode
from schemas.codec.values import CodecError
from schemas.records import Label, Query

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)
LABELS = st.dictionaries(st.sampled_from([*KEYS, "else"]), JSON).map(lambda row: json.dumps(row))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"id": "q", "truth": [1, "a"]}', Label(id="q", truth=[1, "a"])),
        (' {"id": "q", "right": 4, "of": 5}', Label(id="q", right=4.0, of=5.0)),
        ('{"truth": "7"}', Label(id="key", truth="7")),
    ],
)
def test_a_label_in_json(text: str, wanted: Label) -> None:
    assert label_of(text.encode(), b"key") == wanted


@pytest.mark.parametrize("label", [Label(id="q", truth=b"seven"), Label(id="q", right=0.5, of=1.0)])
def test_a_label_in_avro(label: Label) -> None:
    assert label_of(encode(label)) == label


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"truth": 1}, "has no id"),
        ({"id": 7, "truth": 1}, "it must be a text"),
        ({"id": "q" * 300, "truth": 1}, "300 characters"),
        ({"id": "q"}, "has no truth"),
        ({"id": "q", "truth": None}, "has no truth"),
        ({"id": "q", "truth": 1, "right": 1, "of": 1}, "either"),
        ({"id": "q", "right": 1}, "either"),
        ({"id": "q", "right": 3, "of": 2}, "3 right of 2"),
        ({"id": "q", "right": 0, "of": 0}, "0 right of 0"),
        ({"id": "q", "right": True, "of": 1}, "must be a number"),
        ({"id": "q", "right": 10**400, "of": 1}, "too large"),
        ({"id": "q", "tooth": 1}, "no 'tooth'"),
    ],
)
def test_faults_are_reported(row: dict[str, Any], said: str) -> None:
    with pytest.raises(CodecError, match=said):
        label_of(json.dumps(row).encode())


def test_another_record_is_no_label() -> None:
    with pytest.raises(CodecError, match="a Query record where a Label"):
        label_of(encode(Query(payload="x")))


@pytest.mark.parametrize(
    "text", ["{" * 100_000, '{"id": "q", "truth": ' + "[" * 5000 + "]" * 5000 + "}"]
)
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(CodecError):
        label_of(text.encode())


@given(
    st.binary(max_size=200)
    | LABELS.map(str.encode)
    | st.binary(max_size=80).map(lambda b: b"{" + b)
)
def test_whatever_bytes_come_only_codec_errors_are_raised(value: bytes) -> None:
    try:
        label = label_of(value, b"\xff")
    except CodecError:
        return
    assert label.id
