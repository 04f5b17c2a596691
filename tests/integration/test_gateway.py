"""Gateways on real Kafka: one that `up` starts, and one with TLS, tokens and limits."""

import asyncio
import contextlib
import gzip
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc

from headrace.client.give_command import give
from headrace.client.topic_clients import new_id
from headrace.config.pipeline_file import read_pipeline_file
from streams.kafka.kafka_config import KafkaConfig
from tests import gateway_world
from tests.gateway_world import M, call
from tests.integration.brought_up import brought_up
from tests.integration.certificates import make_authority
from tests.integration.gateways import Running, Said, a_gateway, ask, places_in, result_of, words
from tests.otlp_collector import a_collector

ROOT = Path(__file__).parents[2]
TOKEN = "a-token"
a_message = partial(gateway_world.a_message, model="worded")
MOST_BYTES = 20_000
HOLDS = """

import time
from pathlib import Path

class Holds(Shout):
    def predict(self, batch):
        while "held" in batch and not Path({go!r}).exists():
            time.sleep(0.01)
        return super().predict(batch)
"""

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gateway")


@pytest.fixture(scope="module")
def env(broker: str, folder: Path) -> dict[str, str]:
    return {**os.environ, "HEADRACE_HOME": str(folder), "HEADRACE_BOOTSTRAP": broker}


@pytest.fixture(scope="module")
def file(env: dict[str, str], folder: Path) -> Iterator[Path]:
    """Run a pipeline with a gateway on free ports."""
    words_file = yaml.safe_load((ROOT / "examples/words/pipeline.yaml").read_text())
    operators = (ROOT / "examples/words/words.py").read_text()
    (folder / "words.py").write_text(operators + HOLDS.format(go=str(folder / "go")))
    words_file["tasks"]["shout"]["variants"]["plain"]["operator"] = "words:Holds"
    words_file["cluster"] |= {
        "gateway": {"http_port": 0, "grpc_port": 0, "processes": 1}, "metrics_port": 0,
    }  # fmt: skip
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump({**words_file, "name": "worded", "slo": "20s"}))
    with brought_up(path, env):
        yield path


@pytest.fixture(scope="module")
def first(file: Path, folder: Path) -> Running:
    """Return the gateway that `up` started."""
    log = folder / "run" / "worded" / "gateway-0.log"
    until = time.monotonic() + 30.0
    while (places := places_of(log)) is None:  # `up` does not wait for gateways
        assert time.monotonic() < until, log.read_text()
    return places


def places_of(log: Path) -> Running | None:
    return next(filter(None, map(places_in, log.read_text().splitlines())), None)


@pytest.fixture(scope="module")
def guarded(file: Path, env: dict[str, str], folder: Path) -> Iterator[Running]:
    """Run a second gateway, with TLS, tokens and narrow limits."""
    pem = make_authority(folder / "authority.pem").server(folder / "server.pem")
    (folder / "tokens").write_text(f"# of the tests\n{TOKEN}\n")
    with a_gateway(
        file, env, "--tls-certificate", str(pem), "--tls-key", str(pem),
        "--tokens", str(folder / "tokens"), "--most-bytes", str(MOST_BYTES),
        "--idle", "500ms", "--body", "500ms", "--most-connections", "8",
    ) as running:  # fmt: skip
        yield running


@pytest.fixture(scope="module")
def asked(guarded: Running, folder: Path) -> Callable[..., Said]:
    """Return a function that sends requests to the guarded gateway with its token."""
    context = ssl.create_default_context(cafile=folder / "authority.pem")
    bearer = {"Authorization": f"Bearer {TOKEN}"}

    def asked(path: str, body: Any = None, **more: Any) -> Said:
        headers = {**bearer, **more.pop("headers", {})}
        return ask(guarded.http + path, body, headers=headers, context=context, **more)

    return asked


def infer(running: Running, text: str, **more: Any) -> Said:
    headers = more.pop("headers", {})
    return ask(f"{running.http}/v2/models/worded/infer", words(text, **more), headers=headers)


# ---------------------------------------------------------------------- inference


def test_a_request_in_json_is_answered(first: Running) -> None:
    said = infer(first, "hello world", id="mine", headers={"traceparent": "00-a-b-01"})
    assert result_of(said) == ["HELLO", "WORLD"]
    assert said.row["id"] == "mine"
    assert said.headers["traceparent"] == "00-a-b-01"


def test_a_body_may_be_the_input_itself_and_compressed(first: Running) -> None:
    headers = {"Inference-Header-Content-Length": "0", "Content-Encoding": "gzip"}
    url = f"{first.http}/v2/models/worded/versions/1/infer"
    assert result_of(ask(url, gzip.compress(b"as it is"), headers=headers)) == ["AS", "IT", "IS"]


def test_models_and_server_describe_themselves(first: Running) -> None:
    at = f"{first.http}/v2"
    assert ask(at).row["extensions"] == ["binary_tensor_data", "model_configuration", "parameters"]
    assert ask(f"{at}/health/live").row == {"live": True}
    assert ask(f"{at}/health/ready").row == {"ready": True}
    assert ask(f"{at}/models/worded/ready").row == {"name": "worded", "ready": True}
    assert ask(f"{at}/models/worded").row["platform"] == "headrace"
    assert ask(f"{at}/models/worded/config").row["max_batch_size"] == 0
    assert ask(f"{at}/repository/index", b"").row == [
        {"name": "worded", "version": "1", "state": "READY", "reason": ""}
    ]


@pytest.mark.parametrize(
    ("path", "body", "status", "told"),
    [
        ("models/other/infer", words("x"), 404, "known are worded"),
        ("models/worded/versions/2/infer", words("x"), 404, "version 1 only"),
        ("models/worded/infer", b"{", 400, "no inference request"),
        ("models/worded/infer", {"inputs": []}, 400, "one BYTES tensor"),
        ("models/worded/infer", words("x", parameters={"timeout": "soon"}), 400, "microseconds"),
        ("nowhere", None, 404, "/v2/"),
        ("models/worded/infer", None, 405, "GET is not served here, only POST"),
        ("models/worded/answers/nobody", None, 404, "no answer to 'nobody'"),
        ("models/worded/answers/nobody?wait=long", None, 400, "number of seconds"),
    ],
)
def test_requests_that_cannot_be_served_are_refused_with_the_reason(
    first: Running, path: str, body: Any, status: int, told: str
) -> None:
    said = ask(f"{first.http}/v2/{path}", body)
    assert (said.status, told in said.row["error"]) == (status, True), said


def test_beyond_the_callers_deadline_there_is_504(first: Running) -> None:
    said = infer(first, "too late", headers={"headrace-timeout-ms": "0.001"})
    assert said.status == 504
    assert "deadline" in said.row["error"]


def test_a_paused_pipeline_is_unavailable_and_says_when_to_come_again(
    first: Running, file: Path, broker: str
) -> None:
    read, kafka = read_pipeline_file(file), KafkaConfig(broker)
    assert give(read, kafka, "pause", {}).ok
    try:
        said = infer(first, "x")
        while said.status == 200:  # the new plan has not arrived yet
            said = infer(first, "x")
        assert (said.status, said.headers["retry-after"]) == (503, "5")
        while ask(f"{first.http}/v2/health/ready").status == 200:
            pass
    finally:
        assert give(read, kafka, "resume", {}).ok
    while ask(f"{first.http}/v2/health/ready").status != 200:
        pass
    assert result_of(infer(first, "again")) == ["AGAIN"]


def test_requests_of_one_id_are_one_query(first: Running) -> None:
    name = new_id("twice")
    with ThreadPoolExecutor(16) as pool:
        said = list(pool.map(lambda _: infer(first, "once only", id=name), range(16)))
    assert {json.dumps(result_of(each)) for each in said} == {'["ONCE", "ONLY"]'}
    metrics = ask(f"{first.metrics}/metrics").body.decode()
    joined = [line for line in metrics.splitlines() if line.startswith(
        'headrace_gateway_requests_joined_total{pipeline="worded"}')]  # fmt: skip
    assert float(joined[0].split()[-1]) > 0
    assert 'headrace_gateway_requests_total{pipeline="worded",protocol="http",status="200"}' in (
        metrics
    )


# ---------------------------------------------------------------------- asynchronous


def test_an_answer_can_be_fetched_later_from_another_gateway(
    first: Running, asked: Callable[..., Said]
) -> None:
    taken = infer(first, "later", headers={"Prefer": "respond-async"})
    assert taken.status == 202
    place = taken.headers["Location"]
    for fetch in (lambda: ask(f"{first.http}{place}&wait=20"), lambda: asked(f"{place}&wait=20")):
        assert result_of(fetch()) == ["LATER"]


def test_answers_are_streamed_as_they_come(first: Running) -> None:
    prefix = new_id("stream")
    host, port = first.http.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        path = f"/v2/models/worded/answers?prefix={prefix}"
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        stream = connection.makefile("rb")
        assert b"200 OK" in stream.readline()
        assert infer(first, "not for it", id="other").status == 200
        assert infer(first, "for it", id=f"{prefix}-1").status == 200
        data = next(line for line in stream if line.startswith(b"data: "))
    row = json.loads(data.removeprefix(b"data: "))
    assert (row["id"], row["outcome"], row["status"]) == (f"{prefix}-1", "answered", 200)
    assert json.loads(row["body"]["outputs"][0]["data"][0]) == ["FOR", "IT"]


def test_a_client_that_leaves_loses_no_query(first: Running) -> None:
    name = new_id("left")
    body = json.dumps(words("still answered", id=name)).encode()
    host, port = first.http.removeprefix("http://").split(":")
    head = (
        f"POST /v2/models/worded/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(head.encode() + body)
    while (said := ask(f"{first.http}/v2/models/worded/answers/{name}?wait=20")).status == 404:
        pass  # the request itself may still be in flight
    assert result_of(said) == ["STILL", "ANSWERED"]


def test_the_callers_trace_has_the_querys_spans(
    first: Running, file: Path, env: dict[str, str]
) -> None:
    trace, caller = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    traced = infer(first, "traced words", headers={"traceparent": f"00-{trace}-{caller}-01"})
    assert result_of(traced) == ["TRACED", "WORDS"]
    with a_collector() as collector:
        command = ["traces", str(file), "--otlp", collector.endpoint, "--since", "120s"]
        subprocess.run(
            [sys.executable, "-m", "headrace", *command, "--share", "0", "--for", "2s"],
            check=True, env=env, cwd=ROOT,
        )  # fmt: skip
    mine = [span for span in collector.spans if span["traceId"] == trace]
    assert mine[0]["parentSpanId"] == caller
    assert {span["name"] for span in mine} == {
        "worded process", "split/plain", "shout/plain", "queue", "batch",
    }  # fmt: skip


# ---------------------------------------------------------------------- gRPC


def test_the_protocol_over_grpc(first: Running) -> None:
    with grpc.insecure_channel(first.grpc) as channel:
        answer = call(channel, "ModelInfer", a_message(b"over grpc", id="g"), timeout=20)
        assert (answer.id, answer.raw_output_contents[0][4:]) == ("g", b'["OVER","GRPC"]')
        assert call(channel, "ServerReady", M.ServerReadyRequest()).ready
        assert call(channel, "ModelReady", M.ModelReadyRequest(name="worded")).ready
        config = call(channel, "ModelConfig", M.ModelConfigRequest(name="worded")).config
        assert (config.name, config.input[0].data_type) == ("worded", 13)
        health = health_pb2_grpc.HealthStub(channel)
        serving = health.Check(health_pb2.HealthCheckRequest(service="worded"))
        assert serving.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize(
    ("message", "timeout", "code"),
    [
        (M.ModelInferRequest(model_name="other"), 20.0, grpc.StatusCode.NOT_FOUND),
        (M.ModelInferRequest(model_name="worded"), 20.0, grpc.StatusCode.INVALID_ARGUMENT),
        (a_message(b"x", parameters={"timeout": M.InferParameter(int64_param=1)}), None,
         grpc.StatusCode.DEADLINE_EXCEEDED),
    ],
)  # fmt: skip
def test_grpc_requests_that_cannot_be_served_are_refused(
    first: Running, message: Any, timeout: float | None, code: grpc.StatusCode
) -> None:
    with grpc.insecure_channel(first.grpc) as channel, pytest.raises(grpc.RpcError) as raised:
        call(channel, "ModelInfer", message, timeout=timeout)
    assert raised.value.code() is code


# ---------------------------------------------------------------------- guarded


def test_tokens_and_tls_guard_all_but_the_probes(
    guarded: Running, asked: Callable[..., Said], folder: Path
) -> None:
    assert asked("/v2/health/live", headers={"Authorization": ""}).status == 200
    assert asked("/v2/models/worded", headers={"Authorization": "Bearer other"}).status == 401
    assert result_of(asked("/v2/models/worded/infer", words("let in"))) == ["LET", "IN"]
    authority = grpc.ssl_channel_credentials((folder / "authority.pem").read_bytes())
    with grpc.secure_channel(guarded.grpc, authority) as channel:
        with pytest.raises(grpc.RpcError) as raised:
            call(channel, "ModelInfer", a_message(b"x"))
        assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
        bearer = (("authorization", f"Bearer {TOKEN}"),)
        answer = call(channel, "ModelInfer", a_message(b"let in"), metadata=bearer, timeout=20)
        assert answer.raw_output_contents[0][4:] == b'["LET","IN"]'


def test_a_body_over_the_limit_is_refused(asked: Callable[..., Said]) -> None:
    packed = gzip.compress(b"a" * 10 * MOST_BYTES)
    for body, headers in ((b"a" * 2 * MOST_BYTES, {}), (packed, {"Content-Encoding": "gzip"})):
        assert asked("/v2/models/worded/infer", body, headers=headers).status == 413


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"POST /v2/models/worded/infer HTTP/1.1\r\nHost:", b""),  # closed without a response
        (f"POST /v2/models/worded/infer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
         "Content-Length: 99\r\n\r\n{".encode(), b"408 Request Timeout"),
        (f"POST /v2/models/worded/infer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
         "Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nxyz".encode(), b"400 Bad Request"),
    ],
)  # fmt: skip
def test_a_slow_or_broken_request_holds_no_connection(
    guarded: Running, folder: Path, sent: bytes, told: bytes
) -> None:
    with connected(guarded, folder) as connection:
        connection.sendall(sent)
        assert told in b"".join(iter(lambda: connection.recv(4096), b""))


def connected(guarded: Running, folder: Path) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=folder / "authority.pem")
    host, port = guarded.http.removeprefix("https://").split(":")
    plain = socket.create_connection((host, int(port)), timeout=30)
    return context.wrap_socket(plain, server_hostname=host)


def test_connections_beyond_the_limit_are_closed_and_the_others_served(
    guarded: Running, asked: Callable[..., Said], folder: Path
) -> None:
    held, refused = [], 0
    for _ in range(20):
        try:
            held.append(connected(guarded, folder))
        except OSError:  # before the TLS handshake
            refused += 1
    assert refused >= 12
    for connection in held:
        connection.close()
    said = None
    while said is None:
        with contextlib.suppress(OSError):  # the gateway has not yet noticed the closed connections
            said = asked("/v2/models/worded/infer", words("after all"))
    assert result_of(said) == ["AFTER", "ALL"]


class Held(asyncio.Protocol):
    """A connection with half of a request's head; ``ended`` resolves when it is closed."""

    def __init__(self) -> None:
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        transport.write(b"POST /v2/models/worded/infer HTTP/1.1\r\nHost:")

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set_result(error)


def test_ten_thousand_half_requests_do_not_block_complete_requests(
    file: Path, env: dict[str, str]
) -> None:
    limits = ("--most-connections", "10001", "--idle", "2s")

    async def story(running: Running) -> None:
        host, port = running.http.removeprefix("http://").split(":")
        loop = asyncio.get_running_loop()
        served = []
        held: list[Held] = []
        for _ in range(20):
            opening = [loop.create_connection(Held, host, int(port)) for _ in range(500)]
            held += [protocol for _, protocol in await asyncio.gather(*opening)]
            served.append(await asyncio.to_thread(infer, running, "all the same"))
        await asyncio.wait_for(asyncio.gather(*(each.ended for each in held)), 60)
        served.append(await asyncio.to_thread(infer, running, "all the same"))
        assert [result_of(said) for said in served] == [["ALL", "THE", "SAME"]] * 21

    with a_gateway(file, env, *limits) as running:
        asyncio.run(story(running))


# ---------------------------------------------------------------------- end


def open_queries(running: Running) -> float:
    metrics = ask(f"{running.metrics}/metrics").body.decode().splitlines()
    (line,) = (each for each in metrics if each.startswith("headrace_gateway_queries_open{"))
    return float(line.split()[-1])


def listens(running: Running) -> bool:
    host, port = running.http.removeprefix("http://").split(":")
    try:
        socket.create_connection((host, int(port)), timeout=30).close()
    except ConnectionError:  # refused, or reset while the port closes
        return False
    return True


def infer_over_grpc(running: Running, text: bytes) -> bytes:
    with grpc.insecure_channel(running.grpc) as channel:
        answer = call(channel, "ModelInfer", a_message(text), timeout=60)
    return bytes(answer.raw_output_contents[0][4:])


def test_a_gateway_that_goes_down_answers_what_it_has_taken(
    file: Path, env: dict[str, str], folder: Path
) -> None:
    (folder / "go").unlink(missing_ok=True)
    with a_gateway(file, env, "--metrics-port", "0", "--drain", "30s") as running:
        assert running.process is not None
        nobody = f"{running.http}/v2/models/worded/answers/{new_id('nobody')}?wait=60"
        with ThreadPoolExecutor(7) as pool:
            poll = pool.submit(ask, nobody)
            held = [pool.submit(infer, running, f"held {n}") for n in range(4)]
            over_grpc = [pool.submit(infer_over_grpc, running, b"held") for _ in range(2)]
            while open_queries(running) < len(held) + len(over_grpc):
                pass
            running.process.terminate()
            while listens(running):
                pass
            told = poll.result()  # even though the others are held
            assert (told.status, told.headers["retry-after"]) == (503, "5")
            assert not any(each.done() for each in held)
            assert not any(each.done() for each in over_grpc)
            (folder / "go").touch()
            assert [result_of(each.result()) for each in held] == [
                ["HELD", str(n)] for n in range(4)
            ]
            assert [each.result() for each in over_grpc] == [b'["HELD"]'] * 2
        running.process.wait(30)
    assert running.process.returncode == 0
