"""A pipeline: a tree of tasks, each with variants to choose from.

``headrace/config/pipeline_file.py`` makes these from a pipeline file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from schemas.variant_id import variant_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """An implementation of a task. ``operator`` is "package.module:Class", with ``arguments``.

    ``warm_up`` is the path of a file whose bytes are an input to warm the operator up with; "": the
    operator's own samples, if it has any.
    """

    task: str
    name: str
    operator: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    batch: int = 1  # largest batch a worker runs
    replicas: int | None = None  # static policy: number of workers; None: in proportion to load
    time_limit_s: float | None = None  # of one batch; with a limit it runs in a process of its own
    memory_limit_bytes: int | None = None  # resident, of that process
    warm_up: str = ""
    output_schema: str = ""  # a file that every output of the leaf task must fit

    @property
    def key(self) -> str:
        """The variant's name in plans, profiles and reports: "task/variant"."""
        return variant_key(self.task, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A step of the pipeline. ``slots`` partitions are created in advance, one per replica or more.

    - ``share`` bounds the share of the queries that go to the task, if branches are untied and
      accuracy is scaled.
    - ``weight`` is that of a leaf task in the accuracy of an answer.
    - ``selection`` names the tables by which its workers choose a variant per batch; "": they run
      the plan's variant.
    - ``least`` and ``most`` bound its replicas under every policy.
    - ``dispatch`` names the policy by which a dispatcher sends an inner task's items to its
      workers, one by one; "": senders spread them by the plan's shares.
    """

    name: str
    variants: tuple[Variant, ...]
    children: tuple[str, ...] = ()
    slots: int = 64
    share: tuple[float, float] = (0.0, 1.0)
    weight: float = 1.0
    selection: str = ""
    least: int = 1
    most: int | None = None  # None: as many as slots
    dispatch: str = ""


MOST_PARTS = 1000  # of a query that is split


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySize:
    """The source of a query's size: samples to rank, tokens, pixels.

    ``header`` names the Kafka header of raw inputs; a query without one has size 1. Queries larger
    than ``most`` are split by the function ``split``, "package.module:function", or refused ("").
    ``batch`` is the largest total size of a batch; 0: every query is a batch of its own.
    """

    most: int
    header: str = "headrace-size"
    batch: int = 0
    split: str = ""

    @property
    def largest(self) -> int:
        """The largest size of a query that is not refused."""
        return self.most * MOST_PARTS if self.split else self.most


@dataclass(frozen=True, slots=True)
class ClassShare:
    """The weight of an SLO class under overload, and its floor: the part of its queries, 0 to 1,
    that no other class may take from it."""

    weight: float = 1.0
    floor: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Scoring of answers by the labels that users send.

    ``scorer`` is "package.module:function" of a result and its truth; "": exact match. An answer
    waits for its label, and a label for its answer, for ``within_s`` and in ``memory_bytes``.
    ``shadow_share`` of the queries runs a second time along the most accurate path; 0: none. With
    ``plan_by`` "measured", a measured accuracy that has left the interval of its profile replaces
    the profile's in plans.
    """

    scorer: str = ""
    within_s: float = 3600.0
    memory_bytes: int = 64_000_000
    shadow_share: float = 0.0
    plan_by: str = "profile"  # or "measured"

    @property
    def most_truth_bytes(self) -> int:
        """The largest truth of a label."""
        return self.memory_bytes // 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy of a pipeline: its kind, and the values of its options.

    ``kind`` is a name in ``control.policies.POLICIES`` or of an installed policy. The fields are
    the options of every kind (``control/policies/option_fields.py`` has their meaning and permitted
    values); ``options`` are the values of the kind's own, by name. ``replicas`` and ``batch``
    override those of the variants, by "task/variant".
    """

    name: str
    kind: str = "static"
    replicas: Mapping[str, int] = field(default_factory=dict)
    batch: Mapping[str, int] = field(default_factory=dict)
    latency: str = "p95"
    rate: str = "mean"
    interval_s: float = 10.0
    estimator: str = "recent"
    headroom: float = 1.0
    routing: str = "throughput"
    utilisation: float = 1.0
    dropping: str = "deadline"
    budget: str = "shared"
    batching: str = "idle"
    batch_delay_s: float | None = None  # None: ``batching`` decides alone
    capped: bool = False
    paced: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


MOST_DEADLINE_S = 480.0  # work is kept for ten minutes (streams/topics.py); read it by then


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Tasks in topological order, the root first."""

    name: str
    slo_s: float
    tasks: tuple[Task, ...]
    policies: tuple[Policy, ...]
    policy: str  # in force at the start
    input: str = "raw"  # "raw", "avro" or "confluent"
    results: str = "avro"  # "avro", "json" or "confluent"
    schema_registry: str = ""  # URL; for "confluent" only
    combine: str = ""  # "package.module:function", "" for the list of leaf outputs
    incomplete: str = "answered"  # or "dropped": an answer with a branch missing is worthless
    answer_paths: str = "auto"  # or "tree", "all", "none": hops and ends on the results topic
    slo_classes: Mapping[str, float] = field(default_factory=dict)  # seconds
    class_shares: Mapping[str, ClassShare] = field(default_factory=dict)  # by SLO class
    admission: bool = True  # refuse at ingress beyond the plan's capacity
    grace_s: float = 1.0  # egress waits this long behind a deadline before it closes a query
    deadline_most_s: float | None = None  # None: ten SLOs, see ``longest_deadline_s``
    deadline_clock: str = "producer"  # or "broker": whose clock stamps the input topic's records
    input_partitions: int = 4  # of the input topic; an ingress reads one or more
    results_partitions: int = 4  # of the results topic; a consumer of a group reads one or more
    egress_partitions: int = 4
    comm_s: float = 1.4e-3  # latency of one hop
    compute_share: float = 0.5  # of the SLO without hops; the rest is for queues
    branches: str = "tied"  # every query visits all of them; "untied": one of them
    ingress: int = 1  # processes that share the input topic
    dispatchers: int = 1  # processes that share the items of each task with a dispatcher
    size: QuerySize | None = None  # None: every query has size 1
    labels: Labels | None = None  # None: answers are not scored
    sessions: bool = False  # query plans of sessions are searched, as there are tiers

    @property
    def root(self) -> Task:
        """The task by which every query enters."""
        return self.tasks[0]

    @property
    def dispatched(self) -> tuple[Task, ...]:
        """The inner tasks with a dispatcher."""
        return tuple(task for task in self.tasks if task.dispatch)

    @property
    def completion_slots(self) -> int:
        """The partitions of the completions topic: one for each dispatcher."""
        return self.ingress + self.dispatchers * len(self.dispatched)

    @property
    def longest_deadline_s(self) -> float:
        """The latest deadline of a query after its creation, in seconds."""
        if self.deadline_most_s is not None:
            return self.deadline_most_s
        longest_s = max(self.slo_s, *self.slo_classes.values(), 0.0)
        return max(longest_s, min(10 * self.slo_s, MOST_DEADLINE_S))

    def task(self, name: str) -> Task:
        """Return the task of that name; raise ``KeyError`` naming the known ones."""
        for task in self.tasks:
            if task.name == name:
                return task
        raise KeyError(f"no task {name!r} in pipeline {self.name!r}; it has {self.task_names}")

    @property
    def task_names(self) -> tuple[str, ...]:
        """Every task's name, in order."""
        return tuple(task.name for task in self.tasks)
