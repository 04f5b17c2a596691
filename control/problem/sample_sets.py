"""Names of the sample sets that configurations are profiled on.

    workload@SEED          inputs that the pipeline file's workload draws with a seed
    recent@SESSION@MS      a session's own labelled inputs from a time on (milliseconds since the
                           epoch), in the order of their labels; without a session, those of all
    inputs@SESSION@MS-MS   a session's inputs between two times, with or without labels

The order of a set is fixed, so that a prefix is the same for every profiler.
"""

from enum import StrEnum
from math import inf
from typing import NamedTuple

WORKLOAD, RECENT, INPUTS = "workload@", "recent@", "inputs@"
PING = -1  # first sample of a request for none
LABELLED_S = 3600.0  # the labelled inputs of all sessions start at a full hour, 1 to 2 hours ago


class Truth(StrEnum):
    """The reference for the answers of a configuration: the workload's truths, the answers of a
    reference configuration, or the labels of users."""

    WORKLOAD = "workload"
    REFERENCE = "reference"
    FEEDBACK = "feedback"


class InputSet(NamedTuple):
    """The inputs of a session ("": of all) from a time on: the labelled ones, or all up to a last
    time."""

    session: str
    since_s: float
    until_s: float = inf

    @property
    def labelled(self) -> bool:
        """Whether only inputs with a label count."""
        return self.until_s == inf

    @property
    def name(self) -> str:
        """The name of the set."""
        since_ms = int(self.since_s * 1e3)
        if self.labelled:
            return f"{RECENT}{self.session}@{since_ms}"
        return f"{INPUTS}{self.session}@{since_ms}-{int(self.until_s * 1e3)}"


def first_set(truth: Truth, now: float, seed: int = 0) -> str:
    """Return the default set's name for a session that names none and has no inputs yet; ``seed``
    is the workload's."""
    if truth is not Truth.FEEDBACK:
        return f"{WORKLOAD}{seed}"
    # The same for all sessions of an hour, so that they share profiles.
    return InputSet("", max(0.0, now // LABELLED_S - 1) * LABELLED_S).name


def own_set(truth: Truth, session: str, since_s: float, now: float) -> str:
    """Return the name of the set of a session's own inputs from a time on."""
    until_s = now if truth is Truth.REFERENCE else inf
    return InputSet(session, since_s, until_s).name


def input_set(name: str) -> InputSet | None:
    """Return the set of inputs of that name; None for a set of another kind."""
    kind = next((each for each in (RECENT, INPUTS) if name.startswith(each)), "")
    session, _, times = name.removeprefix(kind).rpartition("@")
    since_ms, _, until_ms = times.partition("-")
    if not kind or not since_ms.isdigit() or until_ms.isdigit() is not (kind == INPUTS):
        return None
    if kind == RECENT:
        return None if until_ms else InputSet(session, int(since_ms) / 1e3)
    return InputSet(session, int(since_ms) / 1e3, int(until_ms) / 1e3)
