"""Attach a role's observers: journal, health, clock skews, and metrics if a port is named."""

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from headrace.config.topology import Share
from headrace.processes import ALIVE, RESTARTED
from headrace.roles.observability.log_options import LogOptions, metrics_url
from headrace.service_manager import service_manager
from schemas.pipeline import Pipeline
from schemas.release import RELEASE
from streams.observers.clock_skew import ClockSkews
from streams.observers.control_standing import ControlStanding
from streams.observers.file_mismatch import FileMismatch
from streams.observers.health import Health
from streams.observers.journal import Journal, tell
from streams.observers.metrics import Metrics, MetricSample
from streams.observers.size_series import SizeSeries
from streams.observers.watchers import Watcher
from streams.topics import logical

log = logging.getLogger("headrace.role")

CONTROL = "control"  # the role that consumes reports
LAG_WITHIN_S = 0.5  # longest wait of a scrape for the reading thread


Fold = ClockSkews | FileMismatch | ControlStanding | SizeSeries


class TransportReading(Protocol):
    """The readings of a transport (``streams/kafka/transport.py``) that become metrics."""

    @property
    def away(self) -> bool: ...
    @property
    def commit_failures(self) -> int: ...
    @property
    def throttled_s(self) -> float: ...
    def lag(self, timeout_s: float) -> dict[tuple[str, int], int]: ...


@contextlib.contextmanager
def observed(
    role: str,
    pipeline: Pipeline,
    logs: LogOptions,
    reading: TransportReading | None = None,
    env: Mapping[str, str] = os.environ,
    prices: Mapping[str, float] | None = None,
    *,
    reads_queries: bool = False,
) -> Iterator[tuple[Watcher, ...]]:
    """Yield a role's observers while it runs; log its start and its end.

    ``prices`` are $ per hour by device type, for the metric of the plan's cost. A role that
    ``reads_queries`` watches their sizes, if they have any.

    Raises ``PortTaken`` if the metrics port is in use.
    """
    journal = Journal(pipeline.name)
    health = Health(time.monotonic, sign_of_life(env))
    folds: tuple[Fold, ...] = ()
    name = pipeline.name
    if role == CONTROL:  # of the nodes whose reports arrive
        folds = (ClockSkews(name), FileMismatch(pipeline), ControlStanding(name))
    elif reads_queries and pipeline.size is not None:
        folds = (SizeSeries(name),)
    metrics = None if logs.metrics_port is None else Metrics(pipeline, prices)
    where: dict[str, str] = {}
    if metrics is not None and logs.metrics_port is not None:
        port = _served((metrics, *folds), health, pipeline, logs, reading)
        where = {"metrics": metrics_url(logs.metrics_host, port)}
    log_start(role, pipeline.name, where, env)
    watching = (journal, health, *folds)
    yield watching if metrics is None else (*watching, metrics)
    ended(role, pipeline.name)


def sign_of_life(env: Mapping[str, str]) -> Callable[[], None]:
    """Return a function that reports that the role works.

    It touches the supervisor's file where ``env`` names one, else it notifies the service manager.
    """
    path = env.get(ALIVE)
    return (lambda: Path(path).touch()) if path else service_manager(env)


def _served(
    folds: tuple[Metrics | Fold, ...],
    health: Health,
    pipeline: Pipeline,
    logs: LogOptions,
    reading: TransportReading | None,
) -> int:
    # Imported here: a role without metrics does not load the HTTP server.
    from headrace.roles.observability.metrics_port import serve

    standing = next((fold for fold in folds if isinstance(fold, ControlStanding)), None)
    sources = [fold.samples if standing is None else _current(standing, fold) for fold in folds]
    sources.append(build)
    if reading is not None:
        sources.append(lambda: _broker(pipeline, reading))
    assert logs.metrics_port is not None
    return serve(sources, logs.metrics_port, logs.metrics_host, pipeline.name, health)


def _current(
    standing: ControlStanding, fold: Metrics | Fold
) -> Callable[[], Iterator[MetricSample]]:
    """Return the source of a control app's samples that hold now."""
    return fold.samples if fold is standing else lambda: standing.current(fold.samples())


def build() -> Iterator[MetricSample]:
    """Yield the metric of this installation's release."""
    yield "build_info", (version("headrace"), str(RELEASE)), 1.0


def _broker(pipeline: Pipeline, reading: TransportReading) -> Iterator[MetricSample]:
    yield "broker_up", (), 0.0 if reading.away else 1.0
    yield "commit_failures_total", (), float(reading.commit_failures)
    yield "broker_throttled_seconds_total", (), reading.throttled_s
    behind: dict[str, float] = {}
    for (topic, _), records in reading.lag(LAG_WITHIN_S).items():
        name = logical(pipeline.name, topic)
        behind[name] = behind.get(name, 0.0) + records
    yield from (("lag_records", (topic,), records) for topic, records in behind.items())


def log_start(role: str, pipeline: str, where: Mapping[str, str], env: Mapping[str, str]) -> None:
    """Log the start of a role; ``where`` has the addresses that it serves, by what they serve."""
    again = env.get(RESTARTED, "")
    text = f"{role} of {pipeline} {f'restarted after it {again}' if again else 'started'}"
    text += "".join(f"; {what} at {url}" for what, url in where.items())
    fields = {"pid": os.getpid(), "version": version("headrace"), **_who(role, pipeline), **where}
    if again:
        tell(log, logging.WARNING, "role.restarted", text, after=again, **fields)
    else:
        tell(log, logging.INFO, "role.started", text, **fields)


def ended(role: str, pipeline: str) -> None:
    """Log the end of a role."""
    tell(log, logging.INFO, "role.ended", f"{role} of {pipeline} stopped", **_who(role, pipeline))


def tell_idle(name: str, pipeline: str, topic: str, share: Share, partitions: int) -> None:
    """Log a line if no partition of a topic is in a node's share."""
    if share.mine(partitions):
        return
    text = (
        f"{name} has nothing to read: topic {topic} has {partitions} partitions, and --share "
        f"{share.index}/{share.of} has none of them; run {partitions} processes at most, each with "
        f"--share INDEX/{partitions}, or add partitions"
    )
    tell(log, LEVELS["share.empty"], "share.empty", text, pipeline=pipeline, topic=topic)


def _who(role: str, pipeline: str) -> dict[str, str]:
    return {"role": role, "pipeline": pipeline}


LEVELS = {
    "journal.off": logging.WARNING,
    "results.unfenced": logging.WARNING,
    "role.ended": logging.INFO,
    "role.failed": logging.ERROR,
    "role.restarted": logging.WARNING,
    "role.started": logging.INFO,
    "share.empty": logging.WARNING,
}
