"""Input of the control app, reports and commands, and the results of commands."""

from collections.abc import Mapping

from msgspec import Struct, field

from schemas.enumerations import NodeState


class SlotState(Struct, frozen=True, gc=False):
    """A worker's progress on a slot: offsets below ``done`` are finished."""

    task: str
    slot: int
    done: int
    queued: int  # items received and not finished


class Report(Struct, frozen=True, gc=False, kw_only=True):
    """A node's heartbeat, every 200 ms.

    ``counts`` only grow during one ``incarnation`` (the node's start time), so a lost report loses
    no information:

    * workers, per variant: ``arrived/T/V``, ``finished/T/V``, ``dropped/T/V``, ``failed/T/V``,
      ``batches/T/V``, ``busy_s/T/V`` and ``children/T/V/CHILD``; ``charged_s/T/V`` of a worker with
      a part of a CPU; ``unloadable/SETTING`` is 1 while a worker cannot load the setting
    * ingress: ``arrived``, ``admitted``, ``refused``
    * egress: one count per outcome (operators/outcomes.py), ``incomplete`` answers,
      ``class/CLASS/OUTCOME`` with SLO classes ("" for queries without one), ``latency_s/BOUND`` by
      the latency of answers, ``OUTCOME/CODE`` by the reason code of a dropped, failed or refused
      query, and ``session/ID/OUTCOME`` for the queries of an open session
    * every node: ``reads_release``, the newest schema release that it reads (schemas/release.py)

    ``error`` is the reason for the state ``failed`` or ``stuck``, or why a ready worker cannot load
    a setting. ``held`` are the settings of sessions that a worker has loaded. ``file`` is the
    fingerprint of the node's pipeline file (``schemas/pipeline_fingerprint.py``). ``measured`` are
    the scorer's accuracies by path, while one is outside the interval of its profile.
    """

    node: str
    role: str  # "ingress", "worker" or "egress"
    pipeline: str
    epoch: int  # of the plan that the node follows
    incarnation: float
    sent_s: float
    state: NodeState
    device: str = ""
    task: str = ""
    variant: str = ""
    slots: tuple[SlotState, ...] = ()
    counts: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
    file: str = ""
    held: tuple[str, ...] = ()
    measured: Mapping[str, float] = field(default_factory=dict)


class Command(Struct, frozen=True, gc=False, kw_only=True):
    """A person's command: ``action`` with its ``arguments``, all strings.

    ``id`` makes it idempotent.
    """

    id: str
    pipeline: str
    action: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    issued_s: float = 0.0


class CommandResult(Struct, frozen=True, gc=False, kw_only=True):
    """The result of a command: the change or the error, and the plan epoch that shows it."""

    id: str
    pipeline: str
    action: str
    ok: bool
    message: str
    epoch: int
    finished_s: float
