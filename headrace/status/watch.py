"""``headrace status``: follow plans and reports, of one pipeline or of all, and show them."""

import time
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any

from headrace.client.backlog import Backlog
from headrace.client.topic_clients import PlanTail, Tail, decoded
from headrace.config.pipeline_file import PipelineFile
from headrace.status.overview import Boards
from headrace.status.snapshot import WINDOW_S, Snapshot, board_of
from headrace.terminal import print_json, print_rich, print_text, rich_console
from schemas.effects import PLANS, REPORTS
from schemas.pipeline import Pipeline
from streams.kafka.kafka_client import KafkaConfig, readable_partitions
from streams.kafka.preflight import prepare
from streams.topics import physical

REFRESH_S = 1.0
FIRST_WORD_S = 0.6  # three reports
WAIT_S = 10.0
ALL = ""  # the control topics serve every pipeline


class _Feed:
    """Takes plans and reports from the broker. Begins with every plan and with the reports of the
    last seconds, so that the first look has rates."""

    def __init__(self, kafka: KafkaConfig, see: Callable[[Iterable[object]], None]) -> None:
        self._see = see
        self._plans = PlanTail(kafka)
        self._reports = Tail(kafka, physical(ALL, REPORTS), since_s=time.time() - WINDOW_S)

    def feed(self, seconds: float) -> None:
        """Take in what comes for so long; at least what is there."""
        until = time.monotonic() + seconds
        while True:
            # Reports come all the time, so a short wait for plans costs nothing.
            values = [*self._plans.take(0.005), *self._reports.take(0.05)]
            self._see(decoded(value) for value in values)
            if time.monotonic() >= until:
                return

    def feed_at_once(self) -> None:
        """Take in what is there without waiting."""
        values = [*self._plans.take(0), *self._reports.take(0)]
        self._see(decoded(value) for value in values)

    def close(self) -> None:
        """Let the topics go."""
        self._plans.close()
        self._reports.close()


class Watch(_Feed):
    """One pipeline, fed from the broker."""

    def __init__(self, kafka: KafkaConfig, pipeline: Pipeline) -> None:
        self._board = board_of(pipeline)
        self._backlog = Backlog(kafka, pipeline)
        super().__init__(kafka, self._board.see)

    def snapshot(self, *, with_lag: bool = True) -> Snapshot:
        """What is known now; the lag costs a question to the broker."""
        lag = self._backlog.work() if with_lag else None
        return self._board.snapshot(time.time(), lag)

    def as_json(self) -> Any:
        """For programs."""
        return self.snapshot().as_json()

    def view(self) -> Any:
        """For a person."""
        from headrace.status.status_text import view

        return view(self.snapshot(), rich_console().width)


class WatchAll(_Feed):
    """Every pipeline on the broker."""

    def __init__(self, kafka: KafkaConfig) -> None:
        self._boards = Boards()
        super().__init__(kafka, self._boards.see)
        # Plans are kept for ever: more than what `feed` takes within its time.
        while values := self._plans.take(0.2):
            self._see(decoded(value) for value in values)

    def as_json(self) -> Any:
        """For programs: what ``Watch.as_json`` returns for each, without the lag."""
        return [each.as_json() for each in self._boards.snapshots(time.time())]

    def view(self) -> Any:
        """For a person."""
        from headrace.status.overview_text import view

        return view(self._boards.snapshots(time.time()))


def show_status(file: PipelineFile, kafka: KafkaConfig, *, once: bool, as_json: bool) -> None:
    """Print what one pipeline does, once or each second until Ctrl-C."""
    prepare(kafka, file.pipeline, "operator")
    with closing(Watch(kafka, file.pipeline)) as watch:
        _show(watch, once=once, as_json=as_json)


def show_all(kafka: KafkaConfig, *, once: bool, as_json: bool) -> None:
    """The same of every pipeline on the broker. Raises ``BrokerError``."""
    if not all(readable_partitions(kafka, physical(ALL, t), WAIT_S) for t in (PLANS, REPORTS)):
        nothing = "no pipeline was ever up on this broker; `headrace up FILE` starts one"
        print_json([]) if as_json else print_text(nothing)
        return
    with closing(WatchAll(kafka)) as watch:
        _show(watch, once=once, as_json=as_json)


def _show(watch: Watch | WatchAll, *, once: bool, as_json: bool) -> None:
    watch.feed(FIRST_WORD_S)
    if as_json:
        _print_all(watch, once=once)
    elif once:
        print_rich(watch.view())
    else:
        _live(watch)


def _print_all(watch: Watch | WatchAll, *, once: bool) -> None:
    print_json(watch.as_json())
    while not once:
        watch.feed(REFRESH_S)
        print_json(watch.as_json())


def _live(watch: Watch | WatchAll) -> None:
    from rich.live import Live

    with Live(watch.view(), console=rich_console(), auto_refresh=False) as live:
        while True:
            watch.feed(REFRESH_S)
            live.update(watch.view(), refresh=True)
