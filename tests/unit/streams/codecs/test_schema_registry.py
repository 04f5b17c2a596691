"""A schema registry that accepts a request and never answers."""

import socket

import pytest

from headrace.roles.role_process import FENCE_S
from streams.codecs import schema_registry
from streams.codecs.schema_registry import registry_codec
from streams.kafka.kafka_errors import BrokerError

pytest.importorskip("authlib", reason="the extra `registry` is not installed")


def test_a_registry_that_never_answers_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "READ_WITHIN_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:  # the system accepts; no process reads
        codec = registry_codec(f"http://127.0.0.1:{server.getsockname()[1]}", "words.queries")
        with pytest.raises(BrokerError, match="does not answer"):
            codec.decode(b"\0\0\0\0\7record")


def test_a_registry_that_hangs_gets_the_blame_before_the_record_does() -> None:
    # A schema, the versions of the subject, the newest of them, and the schema again.
    assert 4 * schema_registry.READ_WITHIN_S < FENCE_S
