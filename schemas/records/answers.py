"""Records about answers: notices, ``RESULTS``, ``DEAD_LETTERS``, labels and ``ACCURACY``."""

from collections.abc import Mapping

from msgspec import Struct, field

from schemas.enumerations import ReasonCode
from schemas.records.queries import End, Hop, Origin, Trace, Value


class Notice(Struct, frozen=True, gc=False, kw_only=True):
    """The queries that ingress has read since its last notice; egress waits for them.

    ``queries`` come from one partition of the input topic, in the order of their offsets. ``upto``
    is the offset after the last one: notices cover all queries before it.
    """

    partition: int
    upto: int
    queries: tuple["Noticed", ...] = ()


class Noticed(Struct, frozen=True, gc=False, kw_only=True):
    """A query that ingress admitted, or refused for the reason given."""

    query_id: str
    offset: int
    created_s: float
    deadline_s: float
    refused: str = ""
    reason_code: ReasonCode = ReasonCode.NONE
    slo_class: str = ""
    session: str = ""
    trace: Trace | None = None


class TreeHop(Struct, frozen=True, gc=False):
    """A hop that all branches below it share.

    ``before`` is the index of the previous hop, -1 for the first hop of a path.
    """

    before: int
    hop: Hop


class TreeBranches(Struct, frozen=True, gc=False):
    """``count`` neighbouring branches with the same last hop (-1: none) and the same end.

    ``hop`` and ``end`` are indices.
    """

    hop: int
    end: int
    count: int


class PathTree(Struct, frozen=True, gc=False):
    """The paths and ends of all branches in branch order, each hop and each end once.

    ``schemas/codec/path_tree.py`` converts an answer's ``paths`` and ``ends`` to it and back.
    """

    hops: tuple[TreeHop, ...] = ()
    ends: tuple[End, ...] = ()
    branches: tuple[TreeBranches, ...] = ()


class Answer(Struct, frozen=True, gc=False, kw_only=True):
    """The outcome of a query; ``operators.outcomes.outcome_of`` gives the outcome that is counted.

    ``outcome`` is answered, dropped, failed or refused. ``late`` marks an answer after the
    deadline, ``incomplete`` an answer with a branch missing. ``paths`` has the hops of every branch
    that reached egress, in branch order, and ``ends`` their ends; on the results topic a ``tree``
    may replace both. If the answer is missing or incomplete, ``reason_code`` gives the reason for
    programs and ``reason`` for people.
    """

    id: str
    origin: Origin
    outcome: str
    reason: str = ""
    task: str = ""  # where the query was dropped or failed
    late: bool = False
    incomplete: bool = False
    result: Value = None
    created_s: float
    deadline_s: float
    answered_s: float
    epoch: int = 0
    expected_accuracy: float | None = None
    paths: tuple[tuple[Hop, ...], ...] = ()
    ends: tuple[End, ...] = ()
    reason_code: ReasonCode = ReasonCode.NONE
    tree: PathTree | None = None
    slo_class: str = ""  # the query's
    session: str = ""  # the query's; "": none


class DeadLetter(Struct, frozen=True, gc=False, kw_only=True):
    """A record that could not be decoded, with its bytes unchanged."""

    topic: str
    partition: int
    offset: int
    reason: str
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()
    node: str = ""
    at_s: float


class Label(Struct, frozen=True, gc=False, kw_only=True):
    """The label of query ``id``: the true result, or how much of the answer is right.

    The scorer compares ``truth`` with the answer's result. ``right`` of ``of`` parts is the
    sender's own judgement.
    """

    id: str
    truth: Value = None
    right: float | None = None
    of: float | None = None


class AccuracyRow(Struct, frozen=True, gc=False, kw_only=True):
    """The labelled answers of one path and class in the hour from ``hour_s`` on.

    ``path`` names the distinct variant paths of the query's branches, sorted and joined by " + ",
    so every query is in one row. ``right`` and ``of`` are sums over the queries; ``right_right``,
    ``right_of`` and ``of_of`` are sums of products. ``low`` and ``high`` bound ``accuracy`` with
    95 % confidence (control/estimation/accuracy/accuracy_sums.py). ``expected`` is the profile's
    accuracy of ``path``, with its 95 % interval; None: unknown.

    If answers are compared with their shadows, ``reference`` is the shadows' path,
    ``reference_accuracy`` the profile's accuracy of that path, and "right" means equal to the
    shadow.
    """

    path: str
    slo_class: str
    hour_s: float
    queries: int
    right: float
    of: float
    right_right: float
    right_of: float
    of_of: float
    accuracy: float
    low: float
    high: float
    reference: str = ""
    reference_accuracy: float | None = None
    expected: float | None = None
    expected_low: float | None = None
    expected_high: float | None = None


class MeasuredAccuracy(Struct, frozen=True, gc=False, kw_only=True):
    """The accuracy of a pipeline's answers so far, by their labels.

    ``counts`` are the numbers of labels by outcome (operators/scoring/scorer.py), ``shadow_counts``
    those of shadows. ``shadows`` are the rows of answers compared with their shadows. ``recent``
    has a row for the newest labels of each path, and one for its newest shadows; ``hour_s`` is
    there the time of the oldest answer. The ``_upto`` maps hold, by partition, the offset below
    which answers, labels and shadows are counted. ``trouble`` is the newest error of the scorer.
    """

    pipeline: str
    at_s: float
    rows: tuple[AccuracyRow, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    answers_upto: Mapping[str, int] = field(default_factory=dict)
    labels_upto: Mapping[str, int] = field(default_factory=dict)
    shadows: tuple[AccuracyRow, ...] = ()
    shadow_counts: Mapping[str, int] = field(default_factory=dict)
    shadows_upto: Mapping[str, int] = field(default_factory=dict)
    recent: tuple[AccuracyRow, ...] = ()
    trouble: str = ""
