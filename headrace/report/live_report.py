"""``headrace report``: report the outcomes of a live pipeline's queries over an interval.

The sources are topics on the broker: answers from the results topic, plans from the plans topic.
So a report can be made while the pipeline runs and after it has ended, as long as its answers are
retained. Queries without an answer are not on the results topic and not in the report.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headrace.config.cluster_cost import run_costs
from headrace.config.pipeline_file import PipelineFile
from headrace.config.profile_files import load_profile
from headrace.config.user_functions import load_scorer
from headrace.errors import Unsuccessful
from headrace.fidelity.certificate import Certificate
from headrace.fidelity.certificate_store import newest, stale
from headrace.results.figures import Figures, figures
from headrace.results.label_accuracy import LabelAccuracy, label_accuracy, scored
from headrace.results.latency_steps import StepTimes
from headrace.results.phase_outcomes import InForce, policies_in_force
from headrace.results.time_series import Recorder, TimeSeries, width_s
from headrace.results.variant_outcomes import (
    ExpectedAccuracy,
    VariantOutcomes,
    by_variant,
    profiled_accuracy,
)
from headrace.roles.profile_lookups import accuracies
from operators.scoring.scorer import exact_match
from schemas.codec.single_object import CodecError
from schemas.records import Answer, Plan
from streams.observers.run_metrics import RunMetrics, given_up
from streams.topics import LEASE_MS

if TYPE_CHECKING:
    from confluent_kafka import Message

    from headrace.client.formats import Read
    from streams.kafka.kafka_config import KafkaConfig


AHEAD_S = 3600.0  # as far as brokers by default let a record's time be ahead


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReport:
    """The report of queries created from ``first_s`` to ``last_s``, seconds since the epoch."""

    file: PipelineFile
    first_s: float
    last_s: float
    figures: Figures
    counts: dict[str, int]  # queries by outcome
    recording: TimeSeries
    policies: tuple[InForce, ...]
    certificate: Certificate | None
    stale: tuple[str, ...]  # files that have changed since the certificate
    variants: tuple[VariantOutcomes, ...] = ()
    expected: ExpectedAccuracy | None = None  # None without measured paths
    classes: dict[str, dict[str, int]] = field(default_factory=dict)  # by SLO class and outcome
    measured: LabelAccuracy | None = None  # None: no answer has a label

    def as_json(self) -> dict[str, Any]:
        """Return the object that ``headrace report --json`` prints."""
        return {
            "pipeline": self.file.pipeline.name,
            "from_s": self.first_s,
            "to_s": self.last_s,
            **asdict(self.figures),
            **self.counts,
            **run_costs(self.file.cluster, self.counts["answered"], self.last_s - self.first_s),
            "policies": [asdict(each) for each in self.policies],
            "certificate": self.certificate.as_json() if self.certificate else None,
            "certificate_stale": list(self.stale),
            "variants": [asdict(each) for each in self.variants],
            "path_accuracy": self.expected.as_json() if self.expected else None,
            **({"classes": self.classes} if self.file.pipeline.slo_classes else {}),
            "measured": asdict(self.measured) if self.measured else None,
        }


def live_report(file: PipelineFile, kafka: "KafkaConfig", now: float, seconds: float) -> LiveReport:
    """Report the outcomes of the queries created in the last ``seconds``.

    Raises ``Unsuccessful`` if none was answered, ``BrokerError`` if topics cannot be read.
    """
    from headrace.client.formats import answer_reader
    from headrace.client.newest_records import newest_first
    from headrace.client.topic_clients import retained_plans
    from headrace.terminal import waiting
    from schemas.effects import RESULTS
    from streams.topics import physical

    topic = physical(file.pipeline.name, RESULTS)
    with waiting(f"reading {topic}"):
        stretches = newest_first(kafka, topic)
        answers = answers_between(
            stretches, answer_reader(file.pipeline), now - seconds, now + AHEAD_S
        )
        history = retained_plans(kafka, file.pipeline.name)
    if not answers:
        raise Unsuccessful(
            f"no query of {file.pipeline.name!r} was answered in the last {seconds:g} s; send some "
            "with `headrace load`, or look further back with --last"
        )
    return replace(reported(file, answers, history), measured=_measured(file, kafka, answers))


def _measured(
    file: PipelineFile, kafka: "KafkaConfig", answers: Sequence[Answer]
) -> LabelAccuracy | None:
    from headrace.client.accuracy_topic import labels_since

    labels = file.pipeline.labels
    if labels is None:
        return None
    first_s = min(answer.created_s for answer in answers)
    found = labels_since(kafka, file.pipeline.name, first_s)
    return label_accuracy(scored(answers, found, load_scorer(labels) or exact_match))


def answers_between(
    stretches: Iterable[Sequence["Message"]], read: "Read", since_s: float, until_s: float
) -> list[Answer]:
    """Return the answers to queries created from ``since_s`` to ``until_s``; ``stretches`` run
    newest first.

    A later query is from a client whose clock is far off: with it the report would cover years.
    """
    found: list[Answer] = []
    for stretch in stretches:
        for message in stretch:
            try:
                answer = read(message.value() or b"")
            except CodecError:
                continue  # not a record of this pipeline
            if since_s <= answer.created_s <= until_s:
                found.append(answer)
        # The newest record of the stretch; answers bear the time of egress's lease.
        if stretch and stretch[0].timestamp()[1] < since_s * 1e3 - LEASE_MS:
            break
    return found


def reported(file: PipelineFile, answers: Sequence[Answer], history: Sequence[Plan]) -> LiveReport:
    """Return the report of these answers (one or more) under these plans."""
    first_s = min(answer.created_s for answer in answers)
    last_s = max(answer.created_s for answer in answers)
    profile = load_profile(file)
    metrics, steps = RunMetrics(file.pipeline, accuracies(profile), first_s), StepTimes()
    recorder = Recorder(metrics, width := width_s(last_s - first_s))
    for at_s, record in _in_turn(answers, history, first_s):
        # A clock that was years off when a query was answered would make as many intervals.
        recorder.reach(min(max(at_s, first_s), last_s + width))
        if isinstance(record, Answer):
            metrics.take(record, given_up(record), at_s)
            steps.take(record)
            recorder.answer(record)
        else:
            metrics.plan(record, at_s)
            recorder.plan(record)
    metrics.close(len(answers))
    recording, found = recorder.recording(first_s, last_s), figures(metrics, steps, last_s)
    certificate = newest(file.path)
    return LiveReport(
        file=file,
        first_s=first_s,
        last_s=last_s,
        figures=found,
        counts=dict(metrics.counts),
        classes=metrics.classes,
        recording=recording,
        policies=tuple(policies_in_force(history, first_s, last_s)),
        certificate=certificate,
        stale=stale(certificate, file) if certificate else (),
        variants=by_variant(answers),
        expected=profiled_accuracy(answers, profile),
    )


def _in_turn(
    answers: Sequence[Answer], history: Sequence[Plan], first_s: float
) -> Iterator[tuple[float, Answer | Plan]]:
    """Yield answers and plans in the order of their times.

    Of the plans from before the first query only the last one is yielded, first.
    """
    before = sorted((p for p in history if p.issued_s < first_s), key=lambda plan: plan.epoch)
    yield from ((first_s, plan) for plan in before[-1:])
    later: list[tuple[float, Answer | Plan]] = [
        *((plan.issued_s, plan) for plan in history if plan.issued_s >= first_s),
        *((answer.answered_s, answer) for answer in answers),
    ]
    yield from sorted(later, key=lambda each: each[0])
