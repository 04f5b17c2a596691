"""A gateway model in which the test plays the broker, and the gateway's ports."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from headrace.client.exchange import BrokerNews, RequestHolder
from headrace.client.formats import Headers
from headrace.gateway.access import tokens_in
from headrace.gateway.body_budget import BodyBudget
from headrace.gateway.front import Front
from headrace.gateway.gateway_role import GatewayOptions, listen
from headrace.gateway.http.listeners import Limits
from headrace.gateway.kafka_side import KafkaSide
from headrace.gateway.model import Model
from headrace.gateway.protocol.descriptors import SERVICE, message_classes, pool
from headrace.gateway.request_counts import RequestCounts
from headrace.model_registry.signature import Signature
from schemas.codec.single_object import encode
from schemas.records import ANSWERED, Answer, Lease, Origin, Plan, Query, Settings
from streams.kafka.kafka_errors import BrokerError
from tests.builders import a_pipeline

PIPELINE = a_pipeline({"read": []}, input="raw", name="words")
LIMITS = Limits(
    body_bytes=1000, held_bytes=10_000, connections=20, requests=4, idle_s=5.0, body_s=5.0,
    drain_s=2.0,
)  # fmt: skip


def a_plan(**settings: Any) -> Plan:
    """Return a plan under which the pipeline takes queries."""
    lease = Lease(worker="w", task="read", variant="v", batch=1, slots=(0,), open_slot=0)
    return Plan(
        pipeline=PIPELINE.name, reason="", epoch=1, issued_s=1.0, leases=(lease,),
        settings=Settings(policy="static", slo_s=1.0, **settings),
    )  # fmt: skip


def an_answer(name: str, result: Any = b"result", **more: Any) -> Answer:
    """Return the answer to a query."""
    now = time.time()
    values = {"outcome": ANSWERED, "deadline_s": now + 100.0, "answered_s": now, **more}
    return Answer(id=name, origin=Origin(0, 0), created_s=now, result=result, **values)


@dataclass
class BrokerInTest:
    """An exchange in which the test plays the broker. ``kept`` holds the records of the results
    topic."""

    sent: list[Query] = field(default_factory=list)
    kept: dict[str, Answer] = field(default_factory=dict)
    plan: Plan | None = field(default_factory=a_plan)
    away: bool = False
    ended: Exception | None = None
    plans_ended: Exception | None = None
    on_send: Callable[[Query], None] = lambda _: None
    find: Callable[[str, float | None], Answer | None] | None = None
    holder: RequestHolder | None = None

    def connect(self, holder: RequestHolder) -> "BrokerInTest":
        self.holder = holder
        return self

    def send(self, query: Query, headers: Headers, together: int | None) -> None:
        self.sent.append(query)
        self.on_send(query)

    def close(self) -> None:
        pass

    def tell(
        self,
        *answers: Answer,
        acknowledged: tuple[str, ...] = (),
        refused: Mapping[str, BrokerError] | None = None,
    ) -> None:
        """Give the model the news of a turn."""
        assert self.holder is not None
        records = [(each.id.encode(), encode(each)) for each in answers]
        self.holder.take(BrokerNews(0.0, records, acknowledged, refused or {}))

    def side(self) -> KafkaSide:
        find = self.find or (lambda name, _: self.kept.get(name))
        return KafkaSide(
            connect=self.connect, plan=lambda: self.plan, find=find,
            plans_ended=lambda: self.plans_ended,
        )  # fmt: skip


def answering(broker: BrokerInTest) -> Callable[[Query], None]:
    """Let the broker answer every query immediately."""
    return lambda query: broker.tell(an_answer(query.id))


def a_model(broker: BrokerInTest, most_open: int = 4, signature: Signature | None = None) -> Model:
    """Return a model on the running loop."""
    return Model(PIPELINE, signature, broker.side(), most_open)


@dataclass(frozen=True)
class Gateway:
    """A gateway that listens on this machine, and the ports of its protocols."""

    front: Front
    model: Model
    http: int
    grpc: int


@asynccontextmanager
async def a_gateway(
    broker: BrokerInTest, signature: Signature | None = None, **options: Any
) -> AsyncIterator[Gateway]:
    """Listen with one model over HTTP and gRPC; shut down at the end. ``options`` are those of
    ``GatewayOptions``."""
    options = {"host": "127.0.0.1", "limits": LIMITS, "tokens": None, "tls": None, **options}
    read = GatewayOptions(http_port=0, grpc_port=0, **options)
    model = a_model(broker, read.limits.requests, signature)
    models = {model.name: model}
    bodies = BodyBudget(read.limits.held_bytes)
    front = Front(models, RequestCounts(models), tokens_in(read.tokens), bodies)
    async with AsyncExitStack() as stack:
        stack.callback(model.close)
        where = await listen(stack, front, read)
        http, grpc = urlsplit(where["http"]).port, urlsplit("//" + where["grpc"]).port
        assert http is not None
        assert grpc is not None
        yield Gateway(front, model, http, grpc)


async def said_to(port: int, request: bytes) -> bytes:
    """Send bytes to a port; return all that it sends until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    said = await reader.read()
    writer.close()
    await writer.wait_closed()
    return said


def got(path: str, **headers: str) -> bytes:
    """Return the text of a GET that closes the connection afterwards."""
    return _head("GET", path, headers) + b"\r\n"


def _head(method: str, path: str, headers: Mapping[str, str]) -> bytes:
    named = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    lines = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close", *named]
    return "".join(f"{line}\r\n" for line in lines).encode()


def posted(body: bytes | Any, path: str = "infer", **headers: str) -> bytes:
    """Return the text of a request to the model that closes the connection afterwards."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = _head("POST", f"/v2/models/words/{path}", headers)
    return head + f"Content-Length: {len(raw)}\r\n\r\n".encode() + raw


def parts(said: bytes) -> tuple[int, str, bytes]:
    """Return the status, the head in lower case and the body of a response."""
    head, _, body = said.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode().lower(), body


async def until(so: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(20.0):
        while not so():
            await asyncio.sleep(0)


def counted(front: Front) -> dict[tuple[str, ...], float]:
    """Return the number of requests that ended, by pipeline, protocol and status."""
    samples = front.counts.samples()
    return {
        labels: value
        for name, labels, value in samples
        if name == "gateway_requests_total" and isinstance(value, float)
    }


M = message_classes(pool())


def call(channel: Any, method: str, message: Any, **more: Any) -> Any:
    """Call a method of the protocol over a channel of ``grpc`` or ``grpc.aio``."""
    unary = channel.unary_unary(
        f"/{SERVICE}/{method}",
        request_serializer=type(message).SerializeToString,
        response_deserializer=getattr(M, f"{method}Response").FromString,
    )
    return unary(message, **more)


def a_message(text: bytes, *, model: str = PIPELINE.name, **more: Any) -> Any:
    """Return an inference request with one text."""
    tensor = M.ModelInferRequest.InferInputTensor(name="input", datatype="BYTES", shape=[1])
    raw = len(text).to_bytes(4, "little") + text
    return M.ModelInferRequest(model_name=model, inputs=[tensor], raw_input_contents=[raw], **more)
