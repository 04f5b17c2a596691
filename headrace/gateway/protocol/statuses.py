"""The status of a request in HTTP and gRPC, from the outcome of its query. Pure.

A refusal is 429, not 503: meshes and clients retry a 503, which would triple an overload. A missed
deadline is 504, not 408, which some clients retry.
"""

import math
from enum import Enum
from itertools import compress

from msgspec import Struct

from operators.outcomes import outcome_of
from schemas.enumerations import ReasonCode
from schemas.records import ANSWERED, DROPPED, FAILED, Answer


class Ending(Enum):
    """The ending of a request: its status in HTTP, the name of its code in gRPC, and the seconds
    after which its client may retry (None: not given)."""

    OK = (200, "OK")
    ACCEPTED = (202, "OK")
    BAD_REQUEST = (400, "INVALID_ARGUMENT")
    UNAUTHENTICATED = (401, "UNAUTHENTICATED")
    UNKNOWN = (404, "NOT_FOUND")
    SLOW_CLIENT = (408, "DEADLINE_EXCEEDED")
    CONFLICT = (409, "ALREADY_EXISTS")
    TOO_LARGE = (413, "INVALID_ARGUMENT")
    OVER_CAPACITY = (429, "RESOURCE_EXHAUSTED", 1.0)
    LEFT = (499, "CANCELLED")  # the client left, or the gateway's drain ended; no caller is told
    FAILED = (500, "INTERNAL")
    UNAVAILABLE = (503, "UNAVAILABLE", 5.0)
    PAST_DEADLINE = (504, "DEADLINE_EXCEEDED")

    def __init__(self, http: int, grpc: str, retry_after_s: float | None = None) -> None:
        self.http = http
        self.grpc = grpc
        self.retry_after_s = retry_after_s


MARKS = ("headrace-late", "headrace-incomplete")
CLOCKS_DIFFER_S = 0.05  # how much earlier a client may see its deadline pass


class Status(Struct, frozen=True, kw_only=True):
    """A request's ending, a sentence for people if it was not served, and marks of its answer."""

    ending: Ending
    text: str = ""
    late: bool = False
    incomplete: bool = False

    @property
    def marks(self) -> tuple[str, ...]:
        """Those of ``MARKS`` that the answer has."""
        if not (self.late or self.incomplete):
            return ()
        return tuple(compress(MARKS, (self.late, self.incomplete)))

    @property
    def headers(self) -> dict[str, str]:
        """The HTTP headers, and keys of gRPC's trailing metadata, that report the ending."""
        found = dict.fromkeys(self.marks, "true")
        if self.ending.retry_after_s is not None:
            found["retry-after"] = str(math.ceil(self.ending.retry_after_s))
        return found


class Unserved(Exception):
    """A request that gets no answer, for the reason in ``status``."""

    def __init__(self, ending: Ending, text: str) -> None:
        super().__init__(text)
        self.status = Status(ending=ending, text=text)


def cancelled(remaining_s: float | None) -> Ending:
    """Return the ending of a gRPC call that its client ended.

    ``remaining_s`` is the time left to the call's deadline, seconds; None if it has no deadline.
    The client sees its deadline pass before the gateway does.
    """
    behind = remaining_s is not None and remaining_s <= CLOCKS_DIFFER_S
    return Ending.PAST_DEADLINE if behind else Ending.LEFT


_REFUSED = {
    ReasonCode.OVER_CAPACITY: Ending.OVER_CAPACITY,
    ReasonCode.BAD_INPUT: Ending.BAD_REQUEST,
    ReasonCode.NO_WORKER: Ending.UNAVAILABLE,
    ReasonCode.PAUSED: Ending.UNAVAILABLE,
    ReasonCode.READ_LATE: Ending.PAST_DEADLINE,
}
_ENDED = {DROPPED: Ending.PAST_DEADLINE, FAILED: Ending.FAILED}


def status_of(answer: Answer, caller_until_s: float | None) -> Status:
    """Return the status of an answered, dropped, failed or refused query.

    ``caller_until_s`` is the caller's own deadline, epoch seconds. An answer after it is worthless
    to the caller; an answer only after the pipeline's SLO is marked late.
    """
    if answer.outcome == ANSWERED:
        if caller_until_s is not None and answer.answered_s > caller_until_s:
            late_ms = (answer.answered_s - caller_until_s) * 1e3
            text = f"the answer to {answer.id} came {late_ms:.0f} ms after the caller's deadline"
            return Status(ending=Ending.PAST_DEADLINE, text=text)
        return Status(ending=Ending.OK, late=answer.late, incomplete=answer.incomplete)
    ending = _ENDED.get(answer.outcome) or _REFUSED.get(answer.reason_code, Ending.OVER_CAPACITY)
    return Status(ending=ending, text=_text(answer))


def _text(answer: Answer) -> str:
    where = f" at {answer.task}" if answer.task else ""
    why = f": {answer.reason}" if answer.reason else ""
    return f"query {answer.id} was {outcome_of(answer)}{where}{why}"
