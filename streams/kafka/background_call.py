"""A call that waits for the broker, on a thread of its own."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from confluent_kafka import KafkaException

from streams.kafka.kafka_errors import BrokerError

Result = TypeVar("Result")


class BackgroundCall(Generic[Result]):
    """Calls a function; ``result`` is None until it has ended, and if the broker was away."""

    def __init__(self, name: str, function: Callable[[], Result]) -> None:
        self.result: Result | None = None
        self._function = function
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether the function has returned or raised."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.result = self._function()
        except (BrokerError, KafkaException):
            self.result = None
