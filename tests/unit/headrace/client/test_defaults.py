"""Defaults of a client without arguments."""

from pathlib import Path

import pytest

from headrace.client.defaults import client_brokers, pipeline_among
from headrace.errors import Unsuccessful
from streams.kafka.kafka_errors import BrokerError


def test_brokers_are_those_named_else_those_of_the_environment() -> None:
    env = {"HEADRACE_BOOTSTRAP": "env:9092"}
    assert client_brokers("named:9092", {"a": "b"}, env).bootstrap == "named:9092"
    found = client_brokers(None, {"a": "b"}, env)
    assert (found.bootstrap, dict(found.properties)) == ("env:9092", {"a": "b"})


def test_without_brokers_the_sentence_says_how_to_name_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    with pytest.raises(BrokerError, match="no local broker runs; name them, set HEADRACE_BOOT"):
        client_brokers(None, {}, {})


def test_the_only_pipeline_is_taken() -> None:
    assert pipeline_among({"lines.queries": 4, "lines.results": 4, "headrace.plans": 1}) == "lines"
    with pytest.raises(Unsuccessful, match="no pipeline has topics"):
        pipeline_among({"headrace.plans": 1})
    with pytest.raises(Unsuccessful, match="name one of a, b"):
        pipeline_among({"a.queries": 1, "b.queries": 1})
