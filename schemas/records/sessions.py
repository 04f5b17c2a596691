"""Sessions with their query plans, and the profiles that a search for a plan requests."""

from collections.abc import Mapping

from msgspec import Struct, field

from schemas.enumerations import SessionState


class SessionStage(Struct, frozen=True, gc=False, kw_only=True):
    """One task of a query plan: its setting ("task/variant@knob=option,..."), and where it runs.

    ``device`` is a device of ``tier``, ``slot`` the slot of its worker, and ``quarters`` the
    quarters of the device that the stage occupies (0: the session's own device).
    """

    task: str
    setting: str
    tier: str
    device: str
    slot: int
    quarters: int


class SessionPlan(Struct, frozen=True, gc=False, kw_only=True):
    """The query plan of a session, as work carries it: senders write to the slots named here.

    ``number`` counts the session's plans from 1. Ingress sends queries by the plan that ``admits``;
    workers hold the settings of all plans.
    """

    session: str
    number: int
    slo_s: float
    stages: tuple[SessionStage, ...] = ()
    admits: bool = False

    def stage(self, task: str) -> SessionStage:
        """Return a task's stage; raise ``KeyError`` for a task that the plan lacks."""
        for stage in self.stages:
            if stage.task == task:
                return stage
        raise KeyError(f"the plan of session {self.session!r} has no task {task!r}")


class SessionChoice(Struct, frozen=True, gc=False, kw_only=True):
    """A query plan that meets a session's objectives, before it has devices.

    ``settings`` ("task/variant@..."), ``tiers`` and ``quarters`` of a device are by task. Stages
    with 0 quarters need no share of a shared device. ``latency_s`` 0: unknown. ``run_s`` are the
    profiled seconds of each task's operator on a whole device of its tier, and ``paces`` the
    observed factors on them in ``latency_s``; a task without one has its profile's pace.
    """

    settings: Mapping[str, str]
    tiers: Mapping[str, str]
    quarters: Mapping[str, int]
    latency_s: float = 0.0
    accuracy: float | None = None
    usd_per_h: float = 0.0
    run_s: Mapping[str, float] = field(default_factory=dict)
    paces: Mapping[str, float] = field(default_factory=dict)


class Session(Struct, frozen=True, gc=False, kw_only=True):
    """A stream of queries with objectives of its own, and the plans that meet them.

    ``accuracy`` is the minimum accuracy, ``usd_per_h`` the maximum cost of its plan; None: any.
    ``samples`` names the sample set of its search; "": its plan was made by hand. ``chosen`` is the
    index of the plan in force (-1: none), ``number`` the number of the newest ``SessionPlan``.
    ``reason`` is what the session waits for.

    The search took ``search_s`` seconds (``first_s`` of them to its first plan), ``steps``
    configurations and ``profile_s`` device seconds. The schedule that chose the plan took
    ``schedule_s`` seconds, loading and switching ``switch_s``. From its opening the session took
    ``planned_s`` seconds until it first had plans, and ``serving_s`` until it first served; None:
    not yet. It was replanned ``replans`` times, most recently for ``cause``, which was detected
    ``detect_s`` seconds after its start.
    """

    id: str
    pipeline: str
    state: SessionState
    slo_s: float
    accuracy: float | None = None
    usd_per_h: float | None = None
    weight: float = 1.0
    samples: str = ""
    plans: tuple[SessionChoice, ...] = ()
    chosen: int = -1
    number: int = 0
    opened_s: float = 0.0
    changed_s: float = 0.0
    reason: str = ""
    steps: int = 0
    stopped: str = ""
    search_s: float = 0.0
    first_s: float = 0.0
    profile_s: float = 0.0
    schedule_s: float = 0.0
    switch_s: float = 0.0
    planned_s: float | None = None
    serving_s: float | None = None
    replans: int = 0
    cause: str = ""
    detect_s: float = 0.0


class ProfileRequest(Struct, frozen=True, gc=False, kw_only=True):
    """A search asks a profiler to run one configuration on samples ``first`` to ``upto - 1``.

    ``options`` maps "task.knob" to the option's name. A request of a later ``step`` of the same
    ``search`` voids this one; it also expires at ``expires_s``. ``space`` is the hash of the search
    space (``Space.digest``); a profiler with another one refuses.
    """

    search: str
    pipeline: str
    space: str
    options: Mapping[str, str]
    sample_set: str
    first: int
    upto: int
    step: int
    expires_s: float


class ProfileResult(Struct, frozen=True, gc=False, kw_only=True):
    """The scores and costs of one configuration on the samples from ``first`` on.

    ``scores`` are from 0 to 1, one per sample. ``seconds`` and ``bytes`` are sums over the samples,
    by task: device seconds, as if nothing had been cached, and bytes of outputs. ``cached`` counts,
    by task, the samples whose output was cached; ``spent_s`` are the device seconds that the
    profiler used. ``error`` is the reason for missing scores. ``search`` is the search whose
    request was run; "": not known.
    """

    pipeline: str
    space: str
    options: Mapping[str, str]
    sample_set: str
    first: int
    scores: tuple[float, ...]
    seconds: Mapping[str, float]
    bytes: Mapping[str, float]
    cached: Mapping[str, int]
    input_bytes: float
    spent_s: float
    device: str
    profiler: str
    finished_s: float
    error: str = ""
    search: str = ""
