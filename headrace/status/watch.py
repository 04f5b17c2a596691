"""``headrace status``: follow the plans and reports of one or all pipelines and show them."""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from headrace.client.accuracy_topic import newest_accuracy
from headrace.client.backlog import Backlog
from headrace.client.topic_clients import PlanTail, Tail, decoded
from headrace.config.cluster_cost import prices
from headrace.config.pipeline_file import PipelineFile
from headrace.status.snapshot import WINDOW_S, Board, Snapshot, board_of
from headrace.terminal import print_json, print_rich, print_text, rich_console
from schemas.effects import ACCURACY, PLANS, REPORTS
from schemas.pipeline import Pipeline
from schemas.records import Plan, Report
from streams.kafka.admin.preflight import prepare
from streams.kafka.admin.topic_admin import readable_partitions
from streams.kafka.kafka_config import KafkaConfig
from streams.topics import physical


@dataclass(slots=True)
class Boards:
    """The boards of all pipelines on a broker, fed with plans and reports."""

    _boards: dict[str, Board] = field(default_factory=dict)

    def see(self, records: Iterable[object]) -> None:
        """Add plans and reports to their pipelines' boards; ignore other records."""
        for record in records:
            if isinstance(record, (Plan, Report)):
                board = self._boards.setdefault(record.pipeline, Board(record.pipeline))
                board.see((record,))

    def snapshots(self, now: float) -> list[Snapshot]:
        """Return a snapshot per pipeline at ``now``, by name, including pipelines without nodes."""
        return [board.snapshot(now) for _, board in sorted(self._boards.items())]


REFRESH_S = 1.0
FIRST_WORD_S = 0.6  # three report intervals
WAIT_S = 10.0
ALL = ""  # the control topics are shared by all pipelines


class _Feed:
    """Reads plans and reports from the broker: all plans, and reports from ``WINDOW_S`` ago on, so
    that the first snapshot has rates."""

    def __init__(self, kafka: KafkaConfig, see: Callable[[Iterable[object]], None]) -> None:
        self._see = see
        self._plans = PlanTail(kafka)
        self._reports = Tail(kafka, physical(ALL, REPORTS), since_s=time.time() - WINDOW_S)
        # A slow broker's first records come later than those that `feed` waits for.
        self._see(decoded(message.value() or b"") for message in self._reports.written(WAIT_S))

    def feed(self, seconds: float) -> None:
        """Read records for ``seconds``, with at least one poll of each topic."""
        until = time.monotonic() + seconds
        while True:
            # Reports arrive constantly, so a short wait for plans costs nothing.
            values = [*self._plans.take(0.005), *self._reports.take(0.05)]
            self._see(decoded(value) for value in values)
            if time.monotonic() >= until:
                return

    def feed_at_once(self) -> None:
        """Read the records that are available without waiting."""
        values = [*self._plans.take(0), *self._reports.take(0)]
        self._see(decoded(value) for value in values)

    def close(self) -> None:
        """Close the readers of both topics."""
        self._plans.close()
        self._reports.close()


class Watch(_Feed):
    """The state of one pipeline, fed from the broker."""

    def __init__(
        self, kafka: KafkaConfig, pipeline: Pipeline, priced: Mapping[str, float] | None = None
    ) -> None:
        self._board = board_of(pipeline, priced)
        self._backlog = Backlog(kafka, pipeline)
        super().__init__(kafka, self._board.see)
        topic = physical(pipeline.name, ACCURACY)
        self._accuracy = Tail(kafka, topic) if pipeline.labels else None
        if self._accuracy is not None:
            self._see((newest_accuracy(kafka, pipeline.name),))

    def feed(self, seconds: float) -> None:
        """Read records for ``seconds``, with at least one poll of each topic."""
        super().feed(seconds)
        if self._accuracy is not None:
            self._see(decoded(value) for value in self._accuracy.take(0))

    def close(self) -> None:
        """Close the readers of all topics."""
        super().close()
        if self._accuracy is not None:
            self._accuracy.close()

    def snapshot(self, *, with_lag: bool = True) -> Snapshot:
        """Return the current snapshot; ``with_lag`` queries the broker for the backlog."""
        now = time.time()  # before the broker is asked: reports would look older by its answer
        lag = self._backlog.work() if with_lag else None
        return self._board.snapshot(now, lag)

    def as_json(self) -> Any:
        """Return the snapshot as a JSON object."""
        return self.snapshot().as_json()

    def view(self) -> Any:
        """Return the snapshot as a rich renderable, as wide as the terminal."""
        from headrace.status.status_text import view

        return view(self.snapshot(), rich_console().width)


class WatchName(_Feed):
    """The state of a pipeline of which only the name is known: what plans and reports tell."""

    def __init__(self, kafka: KafkaConfig, name: str) -> None:
        self._board = Board(name)
        super().__init__(kafka, self._board.see)

    def as_json(self) -> Any:
        """Return the snapshot as a JSON object, without the lag."""
        return self._board.snapshot(time.time()).as_json()

    def view(self) -> Any:
        """Return the snapshot as a rich renderable."""
        from headrace.status.status_text import view

        return view(self._board.snapshot(time.time()), rich_console().width)


class WatchAll(_Feed):
    """The state of every pipeline on the broker."""

    def __init__(self, kafka: KafkaConfig) -> None:
        self._boards = Boards()
        super().__init__(kafka, self._boards.see)
        # Plans are retained for ever, so there may be more than one `feed` reads.
        while values := self._plans.take(0.2):
            self._see(decoded(value) for value in values)

    def as_json(self) -> Any:
        """Return the snapshots as JSON objects, as ``Watch.as_json`` does, without the lag."""
        return [each.as_json() for each in self._boards.snapshots(time.time())]

    def view(self) -> Any:
        """Return the snapshots as a rich renderable."""
        from headrace.status.overview_text import view

        return view(self._boards.snapshots(time.time()))


def show_status(
    name: str, file: PipelineFile | None, kafka: KafkaConfig, *, once: bool, as_json: bool
) -> None:
    """Print the state of one pipeline, once or every second until Ctrl-C.

    ``file`` None: only its name is known.
    """
    if file is None:
        with closing(WatchName(kafka, name)) as named:
            _show(named, once=once, as_json=as_json)
        return
    prepare(kafka, file.pipeline, "operator")
    with closing(Watch(kafka, file.pipeline, prices(file.cluster))) as watch:
        _show(watch, once=once, as_json=as_json)


def show_all(kafka: KafkaConfig, *, once: bool, as_json: bool) -> None:
    """Print the state of every pipeline on the broker, once or every second until Ctrl-C.

    Raises ``BrokerError`` if the broker does not answer or a topic may not be read.
    """
    if not all(readable_partitions(kafka, physical(ALL, t), WAIT_S) for t in (PLANS, REPORTS)):
        nothing = "no pipeline was ever up on this broker; `headrace up FILE` starts one"
        print_json([]) if as_json else print_text(nothing)
        return
    with closing(WatchAll(kafka)) as watch:
        _show(watch, once=once, as_json=as_json)


def _show(watch: Watch | WatchName | WatchAll, *, once: bool, as_json: bool) -> None:
    watch.feed(FIRST_WORD_S)
    if as_json:
        _print_all(watch, once=once)
    elif once:
        print_rich(watch.view())
    else:
        _live(watch)


def _print_all(watch: Watch | WatchName | WatchAll, *, once: bool) -> None:
    print_json(watch.as_json())
    while not once:
        watch.feed(REFRESH_S)
        print_json(watch.as_json())


def _live(watch: Watch | WatchName | WatchAll) -> None:
    from rich.live import Live

    with Live(watch.view(), console=rich_console(), auto_refresh=False) as live:
        while True:
            watch.feed(REFRESH_S)
            live.update(watch.view(), refresh=True)
