"""Egress as a process: its lease, its earlier answers, its joins."""

import logging
from collections.abc import Sequence

from headrace.config.pipeline_file import PipelineFile
from headrace.config.profile_files import load_profile
from headrace.config.topology import Share
from headrace.config.user_functions import load_combine
from headrace.errors import NameTaken
from headrace.roles.link_file import file_links, follow_link_file
from headrace.roles.observability.log_options import LogOptions
from headrace.roles.observability.observability import LEVELS, tell_idle
from headrace.roles.profile_lookups import accuracies
from headrace.roles.role_process import (
    FENCE_S,
    crash_journal,
    driver,
    namesakes_of,
    process_now,
    run_until_signal,
)
from operators.egress.egress import Egress, upto_of
from operators.join import as_list
from schemas.effects import OUTPUTS, RESULTS
from schemas.pipeline import Pipeline
from streams.codecs.wire import origins
from streams.kafka.admin.preflight import prepare
from streams.kafka.admin.topic_admin import partitions_of
from streams.kafka.admin.topic_settings import set_stamps
from streams.kafka.egress_recovery import answered_since, answers_from_s, committed_notes
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.leases.egress_lease import EgressLease
from streams.kafka.transport import KafkaTransport
from streams.live.crash_journal import CrashJournal
from streams.observers.journal import tell
from streams.topics import LEASE_MS, TOO_OLD, Stamps, physical

log = logging.getLogger("headrace.role")


def run_egress(file: PipelineFile, kafka: KafkaConfig, share: Share, logs: LogOptions) -> None:
    """Serve as egress until SIGTERM or SIGINT."""
    pipeline = file.pipeline
    prepare(kafka, pipeline, "egress")
    name, incarnation = f"egress-{share.index}", process_now()
    namesakes = namesakes_of(kafka, pipeline, (name,))
    group = f"{pipeline.name}.egress"
    outputs = physical(pipeline.name, OUTPUTS)
    # Partitions beyond the file's number may hold records from before the file was changed.
    count = partitions_of(kafka, outputs)
    mine = share.mine(count)
    tell_idle(name, pipeline.name, outputs, share, count)
    lease = _egress_lease(kafka, pipeline, name, mine)
    namesakes.check()
    lease.acquire()  # so an earlier egress of these partitions answers nothing more
    lease.settle()  # and all of its answers can be read back
    places = committed_notes(kafka, group, outputs, mine)
    links = file_links(file)
    node = Egress(
        name,
        pipeline,
        mine,
        incarnation=incarnation,
        combine=load_combine(pipeline) or as_list,
        accuracies=accuracies(load_profile(file)),
        notes={each.slot: upto_of(each.note) for each in places},
        answered=answered_since(
            kafka, physical(pipeline.name, RESULTS), answers_from_s(places), origins(pipeline)
        ),
        links=links,
        journal=_combine_journal(pipeline, name) if pipeline.combine else None,
    )
    follow_link_file(links, pipeline.name)
    transport = KafkaTransport(kafka, group, lease, validates=True)
    with driver(pipeline, {name: node}, transport, logs, fence_s=FENCE_S) as live:
        run_until_signal(live, live.stop)


def _egress_lease(
    kafka: KafkaConfig, pipeline: Pipeline, name: str, mine: Sequence[int]
) -> EgressLease:
    """Return a lease to acquire; raise ``NameTaken`` if a living egress holds one of ``mine``."""
    lease = EgressLease(kafka, pipeline.name, mine, name)
    other = lease.living_holder()
    if other:
        lease.end(confirmed=False)
        raise NameTaken(
            f"partitions of {physical(pipeline.name, OUTPUTS)} are leased to {other}; two egresses "
            "would answer every query twice: end the other, or give this one a share of its own "
            "(--share)"
        )
    lease.fenced = set_stamps(kafka, physical(pipeline.name, RESULTS), Stamps.LEASE)
    if not lease.fenced:
        _warn_unfenced(pipeline)
    return lease


def _warn_unfenced(pipeline: Pipeline) -> None:
    topic = physical(pipeline.name, RESULTS)
    tell(
        log, LEVELS["results.unfenced"], "results.unfenced",
        f"topic {topic} accepts answers of any age, and this user may not alter it: a "
        f"replaced egress may write duplicate answers; run `kafka-configs --alter --topic {topic} "
        f"--add-config {TOO_OLD}={LEASE_MS}`",
        pipeline=pipeline.name, topic=topic,
    )  # fmt: skip


def _combine_journal(pipeline: Pipeline, name: str) -> CrashJournal | None:
    """Return egress' journal; log a line and return None if the disk takes no file."""
    try:
        # Half: the rest of the turn counts towards the fence, too.
        return crash_journal(pipeline, name, FENCE_S / 2)
    except OSError as error:
        text = (
            f"cannot write the crash journal: {error}; crashes and hangs of `combine` are not "
            "counted"
        )
        tell(log, LEVELS["journal.off"], "journal.off", text, pipeline=pipeline.name)
        return None
