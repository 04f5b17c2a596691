"""How long a starting broker is waited for.

A broker with over a thousand partitions loads them for over a minute on a busy machine, and logs
each. If it were ended then, the next start would begin anew.
"""

from collections.abc import Callable
from dataclasses import dataclass

QUIET_S = 60.0  # 2.6 s on an idle machine, 20 with every core busy
MOST_S = 600.0  # one that logs the same error again and again never answers


@dataclass(slots=True)
class StartPatience:
    """Ends ``quiet_s`` after the logs last changed, and ``MOST_S`` after the start.

    ``logs`` returns a value that changes with the logs; times are seconds of one clock.
    """

    began_s: float
    quiet_s: float
    logs: Callable[[], object]
    _changed_s: float = 0.0
    _seen: object = None

    def __post_init__(self) -> None:
        self._changed_s, self._seen = self.began_s, self.logs()

    def over(self, now_s: float) -> bool:
        """Return whether to wait no longer."""
        found = self.logs()
        if found != self._seen:
            self._changed_s, self._seen = now_s, found
        return now_s - self._changed_s > self.quiet_s or now_s - self.began_s > MOST_S
