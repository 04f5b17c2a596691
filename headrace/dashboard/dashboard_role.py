"""The dashboard's process: one thread reads the topics, the event loop serves the viewers."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from headrace.config.pipeline_file import PipelineFile
from headrace.dashboard.page_access import PageAccess, page_access
from headrace.dashboard.page_server import PageServer
from headrace.dashboard.topic_feed import TopicFeed
from headrace.dashboard.viewers import Viewers
from headrace.errors import DashboardError, PortTaken
from headrace.roles.observability.observability import sign_of_life
from streams.kafka.admin.preflight import prepare
from streams.kafka.kafka_config import KafkaConfig

LOOK_EVERY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardOptions:
    """The address (``port`` 0: any free one) and the access rules of a dashboard."""

    host: str
    port: int
    token_file: Path | None
    names: tuple[str, ...] = ()


def run_dashboard(
    files: Sequence[PipelineFile],
    kafka: KafkaConfig,
    options: DashboardOptions,
    said: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or SIGINT; ``said`` gets the page's address.

    Raises ``BrokerError``, ``PortTaken`` and ``DashboardError``.
    """
    names = [file.pipeline.name for file in files]
    if len(set(names)) < len(names):
        raise DashboardError(f"two files have one pipeline name among {', '.join(names)}; name one")
    access = page_access(options.host, options.token_file, options.names)
    for file in files:
        prepare(kafka, file.pipeline, "dashboard")
    with contextlib.closing(TopicFeed(files, kafka)) as feed:
        asyncio.run(_serve(feed, access, options, said))


async def _serve(
    feed: TopicFeed, access: PageAccess, options: DashboardOptions, said: Callable[[str], None]
) -> None:
    with ThreadPoolExecutor(1, "headrace-dashboard") as reader:
        viewers = Viewers(await _look(reader, feed))
        app = PageServer(viewers, access).app()
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        try:
            said(page_url(options.host, await _listen(runner, options), access, options.token_file))
            await _show(reader, feed, viewers)
        finally:
            viewers.end()
            await runner.cleanup()


async def _look(reader: ThreadPoolExecutor, feed: TopicFeed) -> Mapping[str, Any]:
    return await asyncio.get_running_loop().run_in_executor(reader, feed.look)


async def _listen(runner: web.AppRunner, options: DashboardOptions) -> int:
    site = web.TCPSite(runner, options.host, options.port)
    try:
        await site.start()
    except OSError as error:
        raise PortTaken(
            f"the dashboard cannot be served on {options.host}:{options.port} ({error.strerror}); "
            "name another port with --port"
        ) from error
    return int(runner.addresses[0][1])


def page_url(host: str, port: int, access: PageAccess, token_file: Path | None) -> str:
    """Return the page's address, with the token unless it was read from a file."""
    shown = f"http://{f'[{host}]' if ':' in host else host}:{port}/?token="
    return f"{shown}... with the token in {token_file}" if token_file else shown + access.token


async def _show(reader: ThreadPoolExecutor, feed: TopicFeed, viewers: Viewers) -> None:
    """Show changes every second until a signal."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    touch = sign_of_life(os.environ)
    while not ended.is_set():
        touch()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), LOOK_EVERY_S)
        viewers.show(await _look(reader, feed))
