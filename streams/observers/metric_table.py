"""Metrics: names, types, labels and meanings, by role.

Names follow Prometheus' conventions: a common prefix (``headrace_``), base units, ``_total`` for
counters. Labels are tasks, variants and words of small sets, never ids.
"""

from dataclasses import dataclass

PREFIX = "headrace_"
COUNTER, GAUGE, HISTOGRAM, SUMMARY = "counter", "gauge", "histogram", "summary"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: its name without ``PREFIX``, type, meaning and labels."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


def _counter(name: str, help_text: str, *labels: str) -> Metric:
    return Metric(name, COUNTER, help_text, labels)


def _gauge(name: str, help_text: str, *labels: str) -> Metric:
    return Metric(name, GAUGE, help_text, labels)


def _histogram(name: str, help_text: str, *labels: str) -> Metric:
    return Metric(name, HISTOGRAM, help_text, labels)


def _summary(name: str, help_text: str, *labels: str) -> Metric:
    return Metric(name, SUMMARY, help_text, labels)


# "every": the metrics of all roles.
METRICS: dict[str, tuple[Metric, ...]] = {
    "every": (
        _gauge("plan_epoch", "Epoch of the plan in use; the oldest if nodes differ."),
        _counter("dead_letters_total", "Records that no codec could decode."),
        _gauge(
            "build_info",
            "Always 1; labels: the release, and the newest schema release that it reads.",
            "version", "schemas",
        ),
    ),
    "ingress, worker, egress": (
        _gauge("broker_up", "1 while a broker answers, 0 while none does."),
        _gauge("lag_records", "Consumer lag: records after the committed offsets.", "topic"),
        _counter("commit_failures_total", "Failed offset commits; each is retried."),
        _counter(
            "broker_throttled_seconds_total",
            "Sum of the delays of requests that the broker's quotas imposed.",
        ),
        _gauge("nodes", "Nodes: idle, loading, ready, draining, leaving, failed, stuck.", "state"),
    ),
    "ingress": (
        _counter("queries_read_total", "Queries read from the input topic."),
        _counter("queries_admitted_total", "Queries admitted."),
        _counter(
            "queries_refused_total", "Queries refused; misses_total of egress has the reasons.",
        ),
        _counter("input_regressed_total", "Times that the offsets of a partition went back."),
        _counter("input_missing_total", "Offsets skipped: lost, expired or without a record."),
        _gauge(
            "size_autocorrelation_ratio",
            "Lag-1 autocorrelation of the sizes of about the last 10,000 queries.",
        ),
    ),
    "ingress, dispatcher": (
        _counter(
            "dispatch_decisions_total",
            "Decisions of a central queue, at most one per drain of arrivals.",
        ),
    ),
    "worker": (
        _counter("items_received_total", "Items received.", "task", "variant"),
        _counter("items_finished_total", "Items that ran in a batch.", "task", "variant"),
        _counter(
            "items_dropped_total", "Items dropped because they would have been late.",
            "task", "variant",
        ),
        _counter("items_failed_total", "Items that failed.", "task", "variant"),
        _gauge("items_queued", "Items received and not finished.", "task"),
        _counter("children_total", "Items made for a child task.", "task", "variant", "child"),
        _counter(
            "batches_total", "Batches run, by the reason to start them: full, idle, due.",
            "task", "variant", "released",
        ),
        _histogram(
            "queue_seconds", "Time from an item's arrival at the worker to its batch's start.",
            "task", "variant",
        ),
        _histogram("compute_seconds", "Run time of a batch.", "task", "variant"),
        _counter("device_busy_seconds_total", "Time spent running batches.", "task", "variant"),
        _summary("load_seconds", "Time to load a variant.", "task", "variant"),
    ),
    "egress": (
        _counter(
            "queries_total",
            "Queries ended: answered (complete and in time), late, dropped or incomplete, failed, "
            "refused.",
            "outcome",
        ),
        _counter(
            "misses_total",
            "Queries not answered in time, by the task and reason of the miss.",
            "outcome", "task", "reason",
        ),
        _counter(
            "class_queries_total", "Queries by SLO class, if the pipeline has any.",
            "class", "outcome",
        ),
        _histogram(
            "query_seconds", "Time from a query's time stamp to its answer, late answers included.",
        ),
        _summary("served_accuracy_ratio", "Expected accuracy of queries answered in time."),
        _counter("duplicates_total", "Duplicate work records, which are ignored."),
    ),
    "scorer": (
        _counter(
            "labels_total",
            "Labels by outcome: scored, repeated, unreadable, failed, unmatched.",
            "outcome",
        ),
        _gauge("measured_accuracy_ratio", "Accuracy measured with labels.", "path", "class"),
        _gauge(
            "measured_accuracy_low_ratio", "Lower end of the 95 % interval of measured accuracy.",
            "path", "class",
        ),
        _gauge(
            "measured_accuracy_high_ratio", "Upper end of the 95 % interval of measured accuracy.",
            "path", "class",
        ),
        _gauge("measured_accuracy_labels", "Labels behind the measured accuracy.", "path", "class"),
        _gauge(
            "recent_accuracy_ratio", "Accuracy by the newest labels or shadows.", "path",
            "reference",
        ),
        _gauge(
            "accuracy_drifted",
            "1 if recent accuracy has left the interval of the profile, else 0.",
            "path", "reference",
        ),
        _counter(
            "shadows_total", "Shadows by outcome: compared, same_path, failed.",
            "outcome",
        ),
        _gauge(
            "shadow_agreement_ratio", "Share of answers that equal their shadows.",
            "path", "reference",
        ),
        _gauge(
            "shadow_agreement_low_ratio", "Lower end of the 95 % interval of shadow agreement.",
            "path", "reference",
        ),
        _gauge(
            "shadow_agreement_high_ratio", "Upper end of the 95 % interval of shadow agreement.",
            "path", "reference",
        ),
    ),
    "control": (
        _gauge("control_in_charge", "1 while this control app is in charge, 0 on standby."),
        _counter("reports_stale_total", "Reports ignored because they came too late."),
        _gauge("clock_skew_seconds", "Largest difference between a node's clock and control's."),
        _gauge("nodes_with_other_file", "Nodes whose pipeline file differs from control's."),
        _counter("plans_total", "Plans made, also those that no broker took."),
        _gauge("plan_feasible", "1 if the plan in force is feasible, else 0."),
        _gauge(
            "plan_demand_queries_per_second", "Demand at the root task that the plan is made for.",
        ),
        _gauge(
            "plan_capacity_queries_per_second",
            "Queries that the plan admits; absent if it sets no limit.",
        ),
        _gauge("plan_accuracy_ratio", "Expected accuracy of the plan."),
        _gauge("plan_workers", "Workers that get new work under the plan.", "task", "variant"),
        _gauge(
            "cost_dollars_per_hour", "Price of the plan's workers, by device type with a price.",
            "type",
        ),
        _gauge(
            "workers_wanted", "Rented devices that the control app wants, with `cluster.scale`.",
            "type",
        ),
        _summary("solve_seconds", "Time from the request to a planner to its answer."),
        _counter("commands_total", "Commands by result: done, refused.", "result"),
    ),
    "gateway": (
        _counter(
            "gateway_requests_total",
            "Inference requests ended, by protocol (http, grpc) and HTTP status; "
            "499: the client left.",
            "pipeline", "protocol", "status",
        ),
        _histogram(
            "gateway_request_seconds", "Time from a request's arrival to its response.",
            "pipeline", "protocol",
        ),
        _gauge("gateway_queries_open", "Queries in flight from this gateway.", "pipeline"),
        _gauge(
            "gateway_queries_limit",
            "Most queries in flight that this gateway admits, so that they are answered in time; "
            "+Inf: no limit.",
            "pipeline",
        ),
        _counter(
            "gateway_requests_joined_total",
            "Requests that joined a query in flight with the same id and content.",
            "pipeline",
        ),
        _gauge("gateway_ready", "1 while the pipeline accepts queries, else 0.", "pipeline"),
    ),
    "traces": (
        _counter(
            "exported_spans_total", "Spans by outcome: taken, dropped.", "outcome"
        ),
        _histogram(
            "exported_query_seconds",
            "Latencies of queries whose traces were exported, with the traces as exemplars.",
        ),
    ),
}  # fmt: skip

BY_NAME = {metric.name: metric for metrics in METRICS.values() for metric in metrics}
