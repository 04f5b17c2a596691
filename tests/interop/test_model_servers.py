"""Operators that query a model server work with Triton and ``transformers serve``."""

from collections.abc import Iterator

import numpy as np
import pytest

from headrace.model_servers.open_inference import OpenInference
from headrace.model_servers.openai import OpenAi
from headrace.model_servers.server_requests import ServerFault
from operators.timed_batch import OutOfTime, TimedBatch
from tests.interop.servers import STARTS_WITHIN_S, a_transformers, a_triton, free_ports

pytestmark = [pytest.mark.interop, pytest.mark.slow]


# ---------------------------------------------------------------------- Triton


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a Triton's gRPC, once its models are loaded."""
    ports = free_ports(3)
    with a_triton(tmp_path_factory.mktemp("triton"), ports):
        for model in ("doubling", "shouting"):
            asking(f"127.0.0.1:{ports[1]}", model)
        yield f"127.0.0.1:{ports[1]}"


def asking(server: str, model: str, **more: object) -> OpenInference:
    operator = OpenInference(server, model, batch_axis=True, ready_within_s=STARTS_WITHIN_S, **more)  # type: ignore[arg-type]
    operator.load("cpu")
    return operator


def test_triton_answers_each_item_of_a_batch(triton: str) -> None:
    numbers = [np.arange(n + 1, dtype=np.float32) for n in range(20)]
    outputs = asking(triton, "doubling").predict(numbers)
    assert [each.tolist() for each in outputs] == [(2 * each).tolist() for each in numbers]
    assert asking(triton, "shouting").predict(["quiet", b"bytes"]) == [b"QUIET", b"BYTES"]


def test_what_triton_refuses_fails_its_item_only(triton: str) -> None:
    wrong, right = asking(triton, "shouting").predict(["raise", "right"])
    assert (type(wrong), right) == (ServerFault, b"RIGHT")
    assert "INTERNAL: no word to shout" in str(wrong)
    (shape,) = asking(triton, "doubling").predict([np.zeros((2, 2), np.float32)])
    assert "INVALID_ARGUMENT" in str(shape)


def test_a_triton_request_is_abandoned_at_its_items_deadline(triton: str) -> None:
    operator = asking(triton, "shouting")
    (late,) = operator.predict(TimedBatch(["sleep"], [0.2]))
    assert isinstance(late, OutOfTime)
    assert operator.predict(["after"]) == [b"AFTER"]


# ---------------------------------------------------------------------- transformers serve


@pytest.fixture(scope="module")
def transformers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Yield the URL of a ``transformers serve`` and the name of its model."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}/v1"
    with a_transformers(tmp_path_factory.mktemp("transformers"), port) as (_, model):
        OpenAi(url, model, ready_within_s=STARTS_WITHIN_S).load("cpu")
        yield url, model


def writing(server: tuple[str, str], max_tokens: int) -> OpenAi:
    operator = OpenAi(*server, max_tokens=max_tokens)
    operator.load("cpu")
    return operator


def test_transformers_writes_up_to_the_token_limit_of_the_variant(
    transformers: tuple[str, str],
) -> None:
    brief = writing(transformers, 3).predict(["hello", "world"])
    long = writing(transformers, 40).predict(["hello", "world"])
    assert all(isinstance(text, str) for text in (*brief, *long)), (brief, long)
    assert [len(a) < len(b) for a, b in zip(brief, long, strict=True)] == [True, True]


def test_a_transformers_stream_is_abandoned_at_the_deadline(transformers: tuple[str, str]) -> None:
    operator = writing(transformers, 400)
    (late,) = operator.predict(TimedBatch(["a story without end"], [0.2]))
    assert isinstance(late, OutOfTime)
    assert "had not finished within 200 ms" in str(late)
    assert isinstance(writing(transformers, 2).predict(["and still"])[0], str)
