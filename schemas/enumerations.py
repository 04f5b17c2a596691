"""Enumerations in records. Decisions compare their members, never a sentence.

Each is the Avro enum of the same name; a reader maps a symbol of a later release to ``OTHER``.
``docs/reference/records.md`` lists the members.
"""

from enum import StrEnum


class ReasonCode(StrEnum):
    """Why a query, or one branch of it, has no answer; ``reason`` beside it is for people."""

    NONE = "none"
    PAST_SAVING = "past_saving"
    OVER_BUDGET = "over_budget"
    NO_WAY_ON = "no_way_on"
    READ_LATE = "read_late"
    UNFINISHED = "unfinished"
    OVER_CAPACITY = "over_capacity"
    NO_WORKER = "no_worker"
    PAUSED = "paused"
    BAD_INPUT = "bad_input"
    OPERATOR = "operator"
    COMBINE = "combine"
    OTHER = "other"


class PlanCause(StrEnum):
    """The cause of a plan: one or more events since the plan before it."""

    FIRST = "first"
    INTERVAL = "interval"
    COMMAND = "command"
    WORKER_NEW = "worker_new"
    WORKER_RESTARTED = "worker_restarted"
    WORKER_LEAVING = "worker_leaving"
    WORKER_LOST = "worker_lost"
    WORKER_UNLOADED = "worker_unloaded"
    DEMAND_JUMPED = "demand_jumped"
    DEMAND_FELL = "demand_fell"
    SLOWDOWN = "slowdown"
    FANOUT = "fanout"
    EARLIER_FAILURE = "earlier_failure"
    PLAN_LOST = "plan_lost"
    WORKER_SERVES = "worker_serves"
    WORKER_DRAINED = "worker_drained"
    STAGED = "staged"
    ROUTES = "routes"
    HANDOVER = "handover"
    SESSIONS = "sessions"
    ACCURACY = "accuracy"
    MIX = "mix"
    OTHER = "other"


class NodeState(StrEnum):
    """A node's state, as in its reports."""

    IDLE = "idle"
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    LEAVING = "leaving"
    FAILED = "failed"
    STUCK = "stuck"
    OTHER = "other"


class SessionState(StrEnum):
    """The state of a session; ``control/sessions/session_states.py`` has the transitions."""

    OPENING = "opening"  # its plan is to be searched
    SEARCHING = "searching"  # its plan is searched
    WAITING = "waiting"  # for devices that are free, or for its settings to load
    SERVING = "serving"
    REPLANNING = "replanning"  # it serves, and a new plan is searched or loaded
    CLOSING = "closing"  # what is in flight is finished
    OTHER = "other"
