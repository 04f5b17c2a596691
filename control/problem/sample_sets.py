"""Names of the sample sets that configurations are profiled on.

``workload@SEED`` is what the pipeline file's workload draws with a seed; ``recent@SESSION@MS`` are
a session's own inputs with a label, in the order of their labels, from a time on (milliseconds
since the epoch). Both have one order, so that a prefix of a set means the same to every profiler.
"""

WORKLOAD, RECENT = "workload@", "recent@"


def recent_set(session: str, since_s: float) -> str:
    """Return the name of the set of a session's inputs from a time on."""
    return f"{RECENT}{session}@{int(since_s * 1e3)}"


def recent_of(name: str) -> tuple[str, float] | None:
    """Return the session and the time, in seconds, of a set of recent inputs; None: another set."""
    session, _, since_ms = name.removeprefix(RECENT).rpartition("@")
    if not (name.startswith(RECENT) and session and since_ms.isdigit()):
        return None
    return session, int(since_ms) / 1e3
