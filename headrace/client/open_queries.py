"""The queries in flight of ``headrace.Client``: a future each."""

import threading
from concurrent.futures import Future
from dataclasses import dataclass

from headrace.client.exchange import BrokerNews
from headrace.client.formats import Read
from headrace.errors import NoAnswer
from schemas.codec.single_object import CodecError
from schemas.records import Answer
from streams.kafka.kafka_errors import BrokerError

LOOK_EVERY_S = 0.05  # for timeouts; the largest delay of one


class OpenQueries:
    """The queries in flight. Thread-safe.

    Every future is resolved once: by its answer, its timeout, or an error.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._waiting: dict[str, _Waiting] = {}
        self._look_s = 0.0
        self._ended: Exception | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, name: str, now: float, within_s: float) -> Future[Answer]:
        """Return a future for a query; raises ``ValueError`` for an id in flight, and the error
        given to ``end``."""
        future: Future[Answer] = Future()
        with self._lock:
            if self._ended is not None:
                # Each raise would lengthen its traceback, which holds the frames with the payloads.
                raise self._ended.with_traceback(None)
            if name in self._waiting:
                raise ValueError(f"a query {name!r} is in flight already; give each its own id")
            self._waiting[name] = _Waiting(future, now + within_s, within_s)
        return future

    def take(self, news: BrokerNews) -> None:
        """Resolve the queries that the news concern."""
        for key, value in news.records:
            self.answer(key.decode(errors="replace"), value)
        for name, error in news.refused.items():
            self.fail(name, error)
        if news.now >= self._look_s:  # not every turn: it looks at every query in flight
            self._look_s = news.now + LOOK_EVERY_S
            self.expire(news.now)

    def answer(self, name: str, value: bytes) -> None:
        """Resolve a query in flight with a record of the results topic; ignore any other id."""
        held = self._pop(name)
        if held is None:
            return
        try:
            _resolve(held.answer, self._read(value))
        except (CodecError, BrokerError) as error:  # BrokerError: the schema registry
            _fail(held.answer, error)

    def fail(self, name: str, error: Exception) -> None:
        """Resolve a query with an error."""
        held = self._pop(name)
        if held is not None:
            _fail(held.answer, error)

    def expire(self, now: float) -> None:
        """Resolve the queries whose timeout has passed with ``NoAnswer``."""
        with self._lock:
            late = [(name, w.within_s) for name, w in self._waiting.items() if now > w.due_s]
        for name, within_s in late:
            self.fail(name, _no_answer(name, within_s))

    def end(self, error: Exception) -> None:
        """Resolve every query, and refuse new ones, with an error. The first error wins."""
        with self._lock:
            if self._ended is None:
                self._ended = error
            names = list(self._waiting)
        for name in names:
            self.fail(name, error)

    def _pop(self, name: str) -> "_Waiting | None":
        with self._lock:
            return self._waiting.pop(name, None)


@dataclass(frozen=True, slots=True)
class _Waiting:
    answer: Future[Answer]
    due_s: float
    within_s: float


def _no_answer(name: str, within_s: float) -> NoAnswer:
    """Return the error for a query without an answer."""
    return NoAnswer(
        f"no answer to {name} within {within_s:g} s; check that the pipeline is up with "
        "`headrace status FILE --once` and that input= is what its file says, or wait longer with "
        "timeout="
    )


def _resolve(future: Future[Answer], answer: Answer) -> None:
    if not future.done() and future.set_running_or_notify_cancel():
        future.set_result(answer)


def _fail(future: Future[Answer], error: Exception) -> None:
    if not future.done() and future.set_running_or_notify_cancel():
        future.set_exception(error)
