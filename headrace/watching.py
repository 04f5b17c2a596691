"""``headrace status``: follow a pipeline's plans and reports, and show them."""

import time
from types import TracebackType
from typing import Any, Self

from headrace.backlog import Backlog
from headrace.clients import Tail, decoded
from headrace.config import PipelineFile
from headrace.status import WINDOW_S, Board, Snapshot
from headrace.terminal import print_json, print_rich, rich_console
from schemas.effects import PLANS, REPORTS
from schemas.pipeline import Pipeline
from streams.kafka import KafkaConfig
from streams.preparing import prepare
from streams.topics import physical

REFRESH_S = 1.0
FIRST_WORD_S = 0.6  # three reports


class Watch:
    """A board that is fed from the broker. Begins with the reports of the last seconds, so that
    the first snapshot has rates."""

    def __init__(self, kafka: KafkaConfig, pipeline: Pipeline) -> None:
        self._board = Board(pipeline)
        self._backlog = Backlog(kafka, pipeline)
        self._plans = Tail(kafka, physical(pipeline.name, PLANS), since_s=0.0)
        self._reports = Tail(
            kafka, physical(pipeline.name, REPORTS), since_s=time.time() - WINDOW_S
        )

    def feed(self, seconds: float) -> None:
        """Take in what comes for so long; at least what is there."""
        until = time.monotonic() + seconds
        while True:
            # Reports come all the time, so a short wait for plans costs nothing.
            values = [*self._plans.take(0.005), *self._reports.take(0.05)]
            self._board.see(decoded(value) for value in values)
            if time.monotonic() >= until:
                return

    def feed_at_once(self) -> None:
        """Take in what is there without waiting."""
        values = [*self._plans.take(0), *self._reports.take(0)]
        self._board.see(decoded(value) for value in values)

    def snapshot(self, *, with_lag: bool = True) -> Snapshot:
        """What is known now; the lag costs a question to the broker."""
        lag = self._backlog.work() if with_lag else None
        return self._board.snapshot(time.time(), lag)

    def close(self) -> None:
        """Let the topics go."""
        self._plans.close()
        self._reports.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def show_status(file: PipelineFile, kafka: KafkaConfig, *, once: bool, as_json: bool) -> None:
    """Print one snapshot, or one each second until Ctrl-C."""
    prepare(kafka, file.pipeline, "operator")
    with Watch(kafka, file.pipeline) as watch:
        watch.feed(FIRST_WORD_S)
        if as_json:
            _print_all(watch, once=once)
        elif once:
            print_rich(_view(watch))
        else:
            _live(watch)


def _print_all(watch: Watch, *, once: bool) -> None:
    print_json(watch.snapshot().as_json())
    while not once:
        watch.feed(REFRESH_S)
        print_json(watch.snapshot().as_json())


def _live(watch: Watch) -> None:
    from rich.live import Live

    with Live(_view(watch), console=rich_console(), auto_refresh=False) as live:
        while True:
            watch.feed(REFRESH_S)
            live.update(_view(watch), refresh=True)


def _view(watch: Watch) -> Any:
    from headrace.status_view import view

    return view(watch.snapshot())
