"""The findings of ``headrace doctor``: judge facts, each with its remedy.

These functions are pure: ``headrace/doctor/facts.py`` collects the facts from the machine and the
broker. No finding shows a property of the Kafka clients.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headrace.cells import few
from headrace.errors import BAD_INPUT, NO_BROKER, UNSUCCESSFUL
from streams.control_app.election import SESSION_TIMEOUT_S
from streams.kafka.admin.acl_rights import CREATE, DESCRIBE_CONFIGS, Right
from streams.kafka.leases.write_barrier import TRANSACTION_MS
from streams.topics import MINUTE_MS, MOST_BYTES, STAMPED_BY, TOO_OLD, Topic, too_few

OK, WARN, WRONG = "ok", "warn", "wrong"
BROKER, FILE = "broker", "pipeline file"  # findings with specific exit codes


@dataclass(frozen=True, slots=True)
class Finding:
    """A checked item (``what``), its state, the fact found and the remedy (``mend``)."""

    what: str
    state: str
    found: str
    mend: str = ""

    def as_json(self) -> dict[str, str]:
        """Return the fields by name."""
        return asdict(self)


def verdict(findings: Sequence[Finding]) -> int:
    """Return the exit code: no broker, else an invalid pipeline file, else any other fault."""
    wrong = {finding.what for finding in findings if finding.state == WRONG}
    for what, code in ((BROKER, NO_BROKER), (FILE, BAD_INPUT)):
        if what in wrong:
            return code
    return UNSUCCESSFUL if wrong else 0


# ---------------------------------------------------------------------- this machine


def python_found(version: tuple[int, int, int], wanted: str) -> Finding:
    """Judge the Python version; ``wanted`` is the package's requirement, as in ">=3.11,<3.14"."""
    found = ".".join(str(part) for part in version)
    bounds = re.findall(r"(>=|<)\s*(\d+)\.(\d+)", wanted)
    good = all(
        (version[:2] >= bound) if sign == ">=" else (version[:2] < bound)
        for sign, bound in ((sign, (int(major), int(minor))) for sign, major, minor in bounds)
    )
    if good:
        return Finding("python", OK, found)
    return Finding("python", WRONG, f"{found}, but {wanted} is needed", "create a new environment")


def extras_found(
    requirements: Iterable[str], version_of: Callable[[str], str | None]
) -> list[Finding]:
    """Return a finding for each extra of the package: its libraries with versions, or missing ones.

    A missing extra is no fault: a pipeline file that needs it has its own finding.
    """
    extras: dict[str, list[str]] = {}
    for requirement in requirements:
        match = re.match(r"([\w.-]+)[^;\[]*;.*extra == [\"'](\w+)[\"']", requirement)
        if match and match[2] != "dev":
            extras.setdefault(match[2], []).append(match[1])
    return [_extra(name, {each: version_of(each) for each in extras[name]}) for name in extras]


def _extra(name: str, versions: Mapping[str, str | None]) -> Finding:
    what = f"extra {name}"
    missing = [library for library, version in versions.items() if version is None]
    have = ", ".join(f"{library} {v}" for library, v in versions.items() if v is not None)
    install = f"pip install 'headrace[{name}]' if a pipeline needs it"
    if not missing:
        return Finding(what, OK, have)
    if not have:
        return Finding(what, OK, f"not installed; {install}")
    return Finding(what, WARN, f"{have}; without {', '.join(missing)}", install)


def java_found(java: str, error: str, *, is_needed: bool) -> Finding:
    """Judge the Java runtime; ``java`` is its path and version, else ``error`` is the reason."""
    if java:
        return Finding("java", OK, java)
    if not is_needed:
        return Finding("java", OK, "no Java 17 or newer; not needed because a broker is configured")
    return Finding("java", WRONG, error, "install Java 17 or newer, or set JAVA_HOME")


ENOUGH_BYTES, LEAST_BYTES = 2_000_000_000, 500_000_000


def disk_found(home: str, free_bytes: int) -> Finding:
    """Judge the free disk space for the local broker's data."""
    found = f"{free_bytes / 1e9:.1f} GB free for the local broker in {home}"
    if free_bytes >= ENOUGH_BYTES:
        return Finding("disk", OK, found)
    state = WARN if free_bytes >= LEAST_BYTES else WRONG
    return Finding("disk", state, found, "free disk space, or set HEADRACE_HOME to a larger disk")


def ports_found(ports: Mapping[str, int], taken: Sequence[str], *, is_up: bool) -> Finding:
    """Judge the metrics ports by role; ``taken`` are the roles whose ports are in use."""
    listed = sorted(ports.values())
    found = f"ports {listed[0]} to {listed[-1]} of 127.0.0.1"
    if is_up:
        return Finding("metrics", OK, f"{found}; the pipeline is up")
    if not taken:
        return Finding("metrics", OK, f"{found} are free")
    whose = ", ".join(f"{ports[role]} ({role})" for role in taken)
    mend = "choose another first port: cluster.metrics_port, or up --metrics-port"
    return Finding("metrics", WRONG, f"{found}: in use by another program: {whose}", mend)


# ---------------------------------------------------------------------- the broker

# The highest version of Kafka's Produce request -> the first release with it.
RELEASES = {9: "2.8", 10: "3.7", 11: "3.8", 12: "4.0", 13: "4.1"}


def broker_found(address: str, nodes: int, produce_version: int | None, local: str) -> Finding:
    """Judge a broker that answers. ``local`` is the release of the local broker, "" for others."""
    where = f"{address}, {nodes} node{'s' if nodes != 1 else ''}"
    if local:
        return Finding(BROKER, OK, f"{where}, the local Apache Kafka {local}")
    if produce_version is None:
        return Finding(BROKER, WARN, f"{where}, release unknown", "use Apache Kafka 3.6 or newer")
    known = [release for version, release in RELEASES.items() if version <= produce_version]
    if not known:
        return Finding(BROKER, WARN, f"{where}, older than Apache Kafka 2.8", "upgrade the broker")
    if known[-1] == "2.8":  # releases up to 3.6 share the version
        found = f"{where}, speaks the protocol of Apache Kafka 2.8 to 3.6"
        return Finding(BROKER, WARN, found, "use Apache Kafka 3.6 or newer")
    speaks = f"speaks the protocol of Apache Kafka {known[-1]}"
    return Finding(BROKER, OK, f"{where}, {speaks}" + (" or newer" if known[-1] == "4.1" else ""))


WARN_SKEW_S, WRONG_SKEW_S = 0.05, 1.0


def clock_found(skew_s: float, error_s: float, slo_s: float | None) -> Finding:
    """Judge the lead of the broker's clock over this machine's, with its error bound.

    With a pipeline, a skew above a tenth of its SLO is a warning, above the SLO it is wrong.
    """
    warn_s, wrong_s = (WARN_SKEW_S, WRONG_SKEW_S) if slo_s is None else (slo_s / 10, slo_s)
    ahead = "ahead of" if skew_s >= 0 else "behind"
    found = (
        f"the broker's clock is {abs(skew_s) * 1e3:.1f} ms {ahead} this machine's, "
        f"± {error_s * 1e3:.1f} ms"
    )
    sure_s = abs(skew_s) - error_s
    if sure_s <= warn_s:
        return Finding("clock", OK, found)
    mend = "synchronize both clocks with NTP (chrony, timesyncd): deadlines need equal clocks"
    return Finding("clock", WRONG if sure_s > wrong_s else WARN, found, mend)


# ---------------------------------------------------------------------- the pipeline's topics


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic on the broker. ``operations`` are this user's rights, None if unknown."""

    partitions: int
    settings: Mapping[str, str]
    operations: frozenset[str] | None
    copies: int = 1  # the fewest replicas of a partition


IN_SYNC = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
KEPT, MOST_KEPT = "retention.ms", "retention.bytes"
LEAST_KEPT_MS = MINUTE_MS  # a role that died is back within this time
COMMITS_KEPT = "offsets.retention.minutes"
SESSION_TIMEOUTS = ("group.min.session.timeout.ms", "group.max.session.timeout.ms")
MOST_MEMBERS = "group.max.size"
LONGEST_TRANSACTION = "transaction.max.timeout.ms"
ORDERLY_STOP = "controlled.shutdown.enable"
HIDDEN_TOPIC = TopicState(0, {}, frozenset())  # this user may not describe it
CHECKED = (
    "cleanup.policy",
    MOST_BYTES,
    STAMPED_BY,
    TOO_OLD,
)  # the settings that correctness depends on


def topics_found(
    wanted: Sequence[Topic], there: Mapping[str, TopicState], file: str
) -> list[Finding]:
    """Return findings on missing topics, too few partitions, and settings that lose records."""
    visible = {name: state for name, state in there.items() if state is not HIDDEN_TOPIC}
    hidden = [t.name for t in wanted if t.name in there and t.name not in visible]
    missing = [t.name for t in wanted if t.name not in there]
    findings = []
    if missing:
        findings.append(
            Finding(
                "topics", WARN, f"missing: {few(missing)}", f"`headrace up {file}` creates them"
            )
        )
    for topic in (t for t in wanted if t.name in visible):
        findings += _topic(topic, visible[topic.name])
    if not findings:
        found = f"{len(visible)} of {len(wanted)} exist with enough partitions"
        found += _more_than_named(wanted, visible)
        found += f"; this user may not describe {few(hidden)}" if hidden else ""
        findings.append(Finding("topics", OK, found))
    return findings


def _more_than_named(wanted: Sequence[Topic], there: Mapping[str, TopicState]) -> str:
    """Return what to add on topics that have more partitions than the file names; they are kept."""
    counts = [(topic, there[topic.name].partitions) for topic in wanted if topic.name in there]
    more = [
        f"{topic.name} has {count} ({topic.partitions} in the file)"
        for topic, count in counts
        if topic.key and count > topic.partitions
    ]
    return f"; {few(more)}" if more else ""


def replication_found(
    there: Mapping[str, TopicState], brokers: int, settings: Mapping[str, str] | None = None
) -> Finding:
    """Judge whether acknowledged records survive the loss of one of several brokers, and whether
    the topics still take records then. ``settings`` are those of a lone broker."""
    states = {name: state for name, state in sorted(there.items()) if state.partitions}
    least = min((state.copies for state in states.values()), default=1)
    if brokers < 2:
        found = f"replication factor {least}, 1 broker"
        if (settings or {}).get(ORDERLY_STOP) != "true":
            return Finding("replication", OK, found)
        found += ": when it stops, clients may lose its address for good (librdkafka issue 5301)"
        return Finding("replication", WARN, found, f"set {ORDERLY_STOP}=false on the broker")
    for fault, found, mend in REPLICATION_FAULTS:
        faulty = [name for name, state in states.items() if fault(state)]
        if faulty:
            return Finding("replication", WARN, found.format(few(faulty), brokers), mend)
    return Finding("replication", OK, f"replication factor {least}, {brokers} brokers")


def commits_found(topic: str, state: TopicState, settings: Mapping[str, str]) -> list[Finding]:
    """Return a finding if the input topic keeps records for longer than brokers with these
    ``settings`` keep the commits of roles that are down."""
    kept_ms, minutes = state.settings.get(KEPT), settings.get(COMMITS_KEPT)
    if kept_ms is None or minutes is None or 0 <= int(kept_ms) <= int(minutes) * 60_000:
        return []
    found = (
        f"{topic} keeps records for longer than the brokers keep committed offsets ({minutes} "
        "min): a pipeline that was down for longer answers old queries again"
    )
    mend = f"raise {COMMITS_KEPT} on the brokers, or lower retention.ms of {topic}"
    return [Finding("commits", WARN, found, mend)]


def election_found(settings: Mapping[str, str]) -> list[Finding]:
    """Return a finding if brokers with these ``settings`` let no control app, or no second one,
    join the group that elects the one in charge."""
    wanted_ms = round(SESSION_TIMEOUT_S * 1e3)
    least_ms, most_ms = (int(settings.get(each, wanted_ms)) for each in SESSION_TIMEOUTS)
    if not least_ms <= wanted_ms <= most_ms:
        found = (
            f"the brokers take session timeouts of {least_ms} to {most_ms} ms, and the control "
            f"app's is {wanted_ms} ms: it cannot start"
        )
        mend = f"set {' and '.join(SESSION_TIMEOUTS)} on the brokers to a range that has it"
        return [Finding("election", WRONG, found, mend)]
    if int(settings.get(MOST_MEMBERS, 2)) < 2:
        found = f"{MOST_MEMBERS} is {settings[MOST_MEMBERS]}: no second control app can stand by"
        return [Finding("election", WARN, found, f"raise {MOST_MEMBERS} on the brokers")]
    return []


def transactions_found(settings: Mapping[str, str], brokers: int) -> list[Finding]:
    """Return a finding if several brokers with these ``settings`` let no egress start."""
    most_ms = int(settings.get(LONGEST_TRANSACTION, TRANSACTION_MS))
    if brokers < 2 or most_ms >= TRANSACTION_MS:
        return []
    found = (
        f"{LONGEST_TRANSACTION} is {most_ms}: egress, which needs {TRANSACTION_MS}, cannot start"
    )
    mend = f"set {LONGEST_TRANSACTION} on the brokers to {TRANSACTION_MS} or more"
    return [Finding("transactions", WRONG, found, mend)]


def _in_sync(state: TopicState) -> int | None:
    """Return how many copies a record needs before it is acknowledged; None if unknown."""
    found = state.settings.get(IN_SYNC, "")
    return int(found) if found.isdigit() else None


# A fault of a topic, the sentence on it (topics, brokers), and the remedy; the first one counts.
REPLICATION_FAULTS: tuple[tuple[Callable[[TopicState], bool], str, str], ...] = (
    (
        lambda state: state.copies < 2,
        "replication factor 1 on {} with {} brokers: losing one broker loses acknowledged queries",
        "recreate the topics with replication factor 3, or add replicas "
        "(kafka-reassign-partitions) and set min.insync.replicas=2",
    ),
    (
        lambda state: _in_sync(state) == 1,
        "records on {} are acknowledged by one of {} brokers: losing that broker loses "
        "acknowledged queries",
        "kafka-configs --alter --topic TOPIC --add-config min.insync.replicas=2",
    ),
    (
        lambda state: (_in_sync(state) or 0) >= state.copies,
        "{} refuse records while one of {} brokers is down: min.insync.replicas is not below the "
        "replication factor",
        "add replicas (kafka-reassign-partitions), or lower min.insync.replicas below the "
        "replication factor",
    ),
    (
        lambda state: state.settings.get(UNCLEAN) == "true",
        "{} may elect a leader without the acknowledged records (unclean leader election, {} "
        "brokers)",
        "kafka-configs --alter --topic TOPIC --add-config unclean.leader.election.enable=false",
    ),
)


def _topic(topic: Topic, state: TopicState) -> list[Finding]:
    if state.partitions < topic.partitions:
        return [Finding("topic", WRONG, *too_few(topic, state.partitions))]
    return [
        *(
            _setting(topic, name, state.settings[name])
            for name in CHECKED
            if name in state.settings and _falls_short(name, state.settings, topic.settings)
        ),
        *_retention(topic, state.settings),
    ]


def _retention(topic: Topic, found: Mapping[str, str]) -> Iterator[Finding]:
    """Yield findings on a topic that may delete records before they are read."""
    if KEPT not in topic.settings:
        return
    alter = f"kafka-configs --alter --topic {topic.name} --add-config"
    kept_ms, most_bytes = int(found.get(KEPT, -1)), int(found.get(MOST_KEPT, -1))
    if 0 <= kept_ms < LEAST_KEPT_MS:
        text = (
            f"{topic.name} keeps records for {kept_ms / 1e3:g} s: a reader that is behind by more "
            "loses them"
        )
        yield Finding("topic", WARN, text, f"{alter} {KEPT}={topic.settings[KEPT]}")
    if most_bytes >= 0:
        text = (
            f"{topic.name} keeps {most_bytes} bytes of each partition ({MOST_KEPT}): a reader "
            "that is behind by more loses records"
        )
        yield Finding("topic", WARN, text, f"{alter} {MOST_KEPT}=-1")


def _setting(topic: Topic, name: str, found: str) -> Finding:
    wanted = topic.settings[name]
    listed = f"[{wanted}]" if "," in wanted else wanted  # the list syntax of kafka-configs
    return Finding(
        "topic",
        WRONG,
        f"{name} of {topic.name} is {found}, {wanted} is needed",
        f"kafka-configs --alter --topic {topic.name} --add-config {name}={listed}",
    )


def _falls_short(name: str, found: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    if name not in wanted:
        return False
    if name == "cleanup.policy":
        return set(found[name].split(",")) != set(wanted[name].split(","))
    if name == STAMPED_BY:
        return found[name] != wanted[name]
    if name == TOO_OLD:
        return int(found[name]) > int(wanted[name])
    return int(found[name]) < int(wanted[name])


def rights_found(
    needed: Mapping[str, Sequence[Right]], there: Mapping[str, TopicState], file: str
) -> Finding:
    """Judge which roles this user may run, by the rights that the broker reports; ``needed``: the
    rights by role."""
    known = {name: s.operations for name, s in there.items() if s.operations is not None}
    if not known:
        return Finding(
            "permissions", OK, "unknown: the broker has no topic to query permissions on"
        )
    lacking = {
        role: [
            r for r in rights if r.name in known and not _allowed(r, known[r.name] or frozenset())
        ]
        for role, rights in needed.items()
    }
    able = [role for role, lacks in lacking.items() if not lacks]
    if len(able) == len(needed):
        return Finding("permissions", OK, "this user may run every role")
    first = next(lacks[0] for lacks in lacking.values() if lacks)
    unable = [role for role, lacks in lacking.items() if lacks]
    found = (
        f"this user may run {', '.join(able) or 'no role'}, but not {', '.join(unable)}, which "
        f"need for example {first.operation} on {first.name}"
    )
    return Finding(
        "permissions", WARN, found, f"`headrace acls {file}` prints the ACLs that each role needs"
    )


def _allowed(right: Right, operations: frozenset[str]) -> bool:
    # An existing topic needs no Create right, and a role serves without seeing settings.
    return right.operation in (CREATE, DESCRIBE_CONFIGS) or right.operation.upper() in operations


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return all findings; ``ok`` if none is wrong."""
    return {
        "ok": verdict(findings) == 0,
        "findings": [finding.as_json() for finding in findings],
    }
