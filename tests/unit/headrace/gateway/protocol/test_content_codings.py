"""A compressed body is read whole, or refused."""

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.gateway.protocol.content_codings import MOST_MEMBERS, unpacked
from headrace.gateway.protocol.statuses import Ending, Unserved

TEXT = bytes(range(256)) * 20


def bare(text: bytes) -> bytes:
    made = zlib.compressobj(wbits=-15)
    return made.compress(text) + made.flush()


PACKED = [("gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", bare)]


@pytest.mark.parametrize(("coding", "pack"), PACKED)
@given(st.binary(max_size=300))
def test_a_body_that_is_unpacked_is_the_one_that_was_packed(
    coding: str, pack: object, text: bytes
) -> None:
    assert unpacked(pack(text), coding, 300) == text  # type: ignore[operator]


def test_a_body_of_no_bytes_has_no_coding() -> None:
    assert unpacked(b"", "gzip", 300) == b""


@pytest.mark.parametrize(("coding", "pack"), PACKED)
def test_a_body_that_is_cut_short_anywhere_is_refused(coding: str, pack: object) -> None:
    packed: bytes = pack(TEXT)  # type: ignore[operator]
    for length in range(1, len(packed)):
        with pytest.raises(Unserved, match="the body cannot be read: ") as raised:
            unpacked(packed[:length], coding, len(TEXT))
        assert raised.value.status.ending is Ending.BAD_REQUEST


def test_a_gzip_body_of_several_files_is_all_of_them() -> None:
    assert unpacked(gzip.compress(b"a") + gzip.compress(b"b"), "GZIP", 2) == b"ab"
    assert unpacked(b"", "gzip", 2) == b""
    assert unpacked(b"ab", "identity", 2) == b"ab"


@pytest.mark.parametrize(
    ("body", "coding", "told"),
    [
        (b"no gzip", "gzip", "it is no gzip"),
        (gzip.compress(b"a", mtime=0) + b"more", "gzip", "it is no gzip"),
        (gzip.compress(b"", mtime=0) * (MOST_MEMBERS + 1), "gzip", "20 bytes follow its end"),
        (zlib.compress(b"a") + b"more", "deflate", "4 bytes follow its end"),
        (b"ab", "br", "is 'br'; send gzip, deflate or none"),
        (b"ab", "gzip, gzip", "send gzip, deflate or none"),
    ],
)
def test_a_body_that_is_not_in_its_coding_is_refused(body: bytes, coding: str, told: str) -> None:
    with pytest.raises(Unserved, match="the body cannot be read") as raised:
        unpacked(body, coding, 100)
    assert told in str(raised.value)


@pytest.mark.parametrize(("coding", "pack"), PACKED)
def test_a_body_over_the_limit_is_not_unpacked_further(coding: str, pack: object) -> None:
    packed: bytes = pack(TEXT)  # type: ignore[operator]
    assert unpacked(packed, coding, len(TEXT)) == TEXT
    with pytest.raises(Unserved, match=f"over {len(TEXT) - 1} bytes, decompressed") as raised:
        unpacked(packed, coding, len(TEXT) - 1)
    assert raised.value.status.ending is Ending.TOO_LARGE
