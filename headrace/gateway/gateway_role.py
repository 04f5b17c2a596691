"""The gateway's process: its models, ports, health and end."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.config.pipeline_file import PipelineFile
from headrace.errors import GatewayError
from headrace.gateway.access import tokens_in
from headrace.gateway.body_budget import BodyBudget
from headrace.gateway.certificates import Certificates, Tls
from headrace.gateway.event_loop import gateway_loop
from headrace.gateway.front import Front
from headrace.gateway.http.http_api import HttpApi
from headrace.gateway.http.listeners import HttpListener, Limits, address, raise_open_files
from headrace.gateway.kafka_side import kafka_side
from headrace.gateway.model import Model
from headrace.gateway.plans_in_force import PlansInForce
from headrace.gateway.request_counts import RequestCounts
from headrace.roles.heap import tune_heap
from headrace.roles.observability.log_options import LogOptions, metrics_url
from headrace.roles.observability.observability import build, ended, log_start, sign_of_life
from streams.kafka.admin.preflight import prepare
from streams.kafka.kafka_config import KafkaConfig

Closing = Callable[[], Awaitable[None]]

LOOK_EVERY_S = 0.5  # at the models, for the health service, the supervisor and a broken client
# How long the event loop may delay the thread that reads answers, and vice versa: Python's default
# of 5 ms cost throughput (docs/results/overhead.md).
SWITCH_S = 0.0005
# gRPC reads sockets in the thread that waits for its events. By default a pool of threads reads
# them and wakes that thread: 16 thread switches per call instead of 12.
GRPC_EXPERIMENTS = "-event_engine_listener"
NOTICED_S = 0.5  # from "not ready" until the port closes, for load balancers that probe


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """The addresses, access rules and limits of a gateway. ``grpc_port`` None: no gRPC.

    ``share_ports``: other gateways on this machine listen on the same ports.
    """

    host: str
    http_port: int
    grpc_port: int | None
    tokens: Path | None
    tls: Tls | None
    limits: Limits
    share_ports: bool = False


def run_gateway(
    files: Sequence[PipelineFile], kafka: KafkaConfig, options: GatewayOptions, logs: LogOptions
) -> None:
    """Serve until SIGTERM or SIGINT; then answer the requests in flight.

    Raises ``BrokerError``, ``PortTaken`` and ``GatewayError``.
    """
    names = [file.pipeline.name for file in files]
    if len(set(names)) < len(names):
        raise GatewayError(f"two files have one pipeline name among {', '.join(names)}; serve one")
    grpc = 0 if options.grpc_port is None else options.limits.grpc_connections
    raise_open_files(options.limits.connections, grpc)
    for file in files:
        prepare(kafka, file.pipeline, "gateway")
    with asyncio.Runner(loop_factory=gateway_loop) as runner:
        runner.run(_serve(files, kafka, options, logs))


async def _serve(
    files: Sequence[PipelineFile], kafka: KafkaConfig, options: GatewayOptions, logs: LogOptions
) -> None:
    async with AsyncExitStack() as stack:
        front = stack.enter_context(_front(files, kafka, options))
        where = _metrics(front, logs) | await listen(stack, front, options)
        log_start("gateway", ", ".join(front.models), where, os.environ)
        tune_heap()
        sys.setswitchinterval(SWITCH_S)
        await _until_signal(front)
        front.drain.set()
        await asyncio.sleep(NOTICED_S)
        _raise_broken(front)
    ended("gateway", ", ".join(front.models))


@contextlib.contextmanager
def _front(
    files: Sequence[PipelineFile], kafka: KafkaConfig, options: GatewayOptions
) -> Iterator[Front]:
    tokens = tokens_in(options.tokens)
    with ExitStack() as stack:
        plans = PlansInForce(kafka)
        stack.callback(plans.close)
        models: dict[str, Model] = {}
        for file in files:
            side = kafka_side(kafka, file.pipeline, plans)
            model = Model(file.pipeline, file.signature, side, options.limits.requests)
            models[model.name] = model
            stack.callback(model.close)
        bodies = BodyBudget(options.limits.held_bytes)
        yield Front(models, RequestCounts(models), tokens, bodies)


async def listen(stack: AsyncExitStack, front: Front, options: GatewayOptions) -> dict[str, str]:
    """Open the ports; on the stack's exit they close and the requests in flight are answered."""
    scheme = "http" if options.tls is None else "https"
    served = None if options.tls is None else Certificates(options.tls)
    if served is not None:
        following = asyncio.create_task(served.follow())
        stack.callback(following.cancel)
    limits = options.limits
    listener = HttpListener(HttpApi(front, limits).app(), limits)
    closing: list[Closing] = [listener.close]
    stack.push_async_callback(_all, closing)
    port = await listener.start(options.host, options.http_port, served, share=options.share_ports)
    where = {"http": f"{scheme}://{address(options.host, port)}/v2"}
    if options.grpc_port is not None:
        bound = await _listen_grpc(closing, front, options, options.grpc_port, served)
        where["grpc"] = address(options.host, bound)
    return where


async def _listen_grpc(
    closing: list[Closing],
    front: Front,
    options: GatewayOptions,
    port: int,
    served: Certificates | None,
) -> int:
    # Imported here: a gateway of HTTP only needs no gRPC. The library reads its settings then.
    os.environ.setdefault("GRPC_EXPERIMENTS", GRPC_EXPERIMENTS)
    from headrace.gateway.grpc.grpc_api import GrpcApi, grpc_server, report_health, start_grpc
    from headrace.gateway.grpc.queue_wait import QueueWait

    server = grpc_server(options.limits, len(front.models), share=options.share_ports)
    folder = TemporaryDirectory(prefix="headrace-gateway-")
    queue, own = QueueWait(asyncio.get_running_loop().time), f"unix:{folder.name}/calls"
    api = GrpcApi(front, queue, options.limits.body_s)
    api.add_to(server)
    queue.add_to(server, own)
    bound = await start_grpc(server, options.host, port, served)
    beside = (report_health(api, LOOK_EVERY_S), queue.watch(own))
    tasks = [asyncio.create_task(each) for each in beside]

    async def close() -> None:
        for task in tasks:
            task.cancel()
        await server.stop(options.limits.drain_s)
        folder.cleanup()

    closing.append(close)
    return bound


async def _all(closing: Sequence[Closing]) -> None:
    await asyncio.gather(*(close() for close in closing))


def _metrics(front: Front, logs: LogOptions) -> dict[str, str]:
    if logs.metrics_port is None:
        return {}
    from headrace.roles.observability.metrics_port import serve

    host = logs.metrics_host
    port = serve((front.counts.samples, build), logs.metrics_port, host, "", front)
    return {"metrics": metrics_url(host, port)}


async def _until_signal(front: Front) -> None:
    """Return at SIGTERM or SIGINT, or once a model's client has ended for good."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    touch = sign_of_life(os.environ)
    while not (stop.is_set() or front.live()):
        touch()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), LOOK_EVERY_S)


def _raise_broken(front: Front) -> None:
    for model in front.models.values():
        if model.broken is not None:
            raise model.broken
