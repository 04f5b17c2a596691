"""The local broker's files, configuration and command lines; starts no process."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.broker.java_runtime import JavaRuntime
from headrace.processes import data_directory
from streams.topics import MAX_RECORD_BYTES

_SERVER = """\
process.roles=broker,controller
node.id={node}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}{proxied}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}{proxies}
controller.quorum.voters={voters}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT{protocols}
log.dirs={data}

# Every topic, internal ones too, has a copy on each node and outlives the loss of one of three.
default.replication.factor={copies}
min.insync.replicas={in_sync}
offsets.topic.replication.factor={copies}
offsets.topic.num.partitions=1
transaction.state.log.replication.factor={copies}
transaction.state.log.min.isr={in_sync}
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor={copies}
share.coordinator.state.topic.min.isr={in_sync}
share.coordinator.state.topic.num.partitions=1

# A misspelt topic must fail, not come into being with one partition.
auto.create.topics.enable=false
num.partitions=1
message.max.bytes={max_record_bytes}
replica.fetch.max.bytes={max_record_bytes}

# Groups: quick for tests and for the control app's own small group.
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
group.consumer.min.session.timeout.ms=2000
group.consumer.session.timeout.ms=6000
group.consumer.min.heartbeat.interval.ms=200
group.consumer.heartbeat.interval.ms=500

# Retention of minutes works only if it is looked at more often than every five minutes, and a
# thousand slots must not each map two indexes of 10 MB.
log.retention.check.interval.ms=10000
log.segment.bytes=67108864
log.segment.delete.delay.ms=10000
log.index.size.max.bytes=1048576
log.cleaner.threads=1
log.cleaner.dedupe.buffer.size=2097152
log.cleaner.backoff.ms=5000

# A laptop shares its cores with the workers.
num.network.threads=2
num.io.threads=2
background.threads=2
auto.leader.rebalance.enable=false
"""

# A lone broker that shuts down cleanly answers with metadata of topics but no brokers. librdkafka
# since 2.10 may then never reconnect (its issue 5301), and there is no broker to hand over to.
_ALONE = """\
controlled.shutdown.enable=false
"""

# A lost or frozen node is replaced within 4 s: if it leads the quorum, the others elect a new
# leader after the fetch timeout, and the new leader waits for the session timeout.
_SEVERAL = """\
broker.session.timeout.ms=1500
broker.heartbeat.interval.ms=250
controller.quorum.fetch.timeout.ms=800
controller.quorum.election.timeout.ms=300
controller.quorum.request.timeout.ms=1000
replica.lag.time.max.ms=3000
replica.socket.timeout.ms=3000
unclean.leader.election.enable=false
"""

_LOG4J = """\
status=error
# Else log4j stops first and the broker's own end is not in its log.
shutdownHook=disable
appenders=file
appender.file.type=RollingFile
appender.file.name=file
appender.file.fileName={log}
appender.file.filePattern={log}.%i
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=[%d] %p %m (%c{{1}})%n
appender.file.policies.type=Policies
appender.file.policies.start.type=OnStartupTriggeringPolicy
appender.file.policies.size.type=SizeBasedTriggeringPolicy
appender.file.policies.size.size=10MB
appender.file.strategy.type=DefaultRolloverStrategy
appender.file.strategy.max=3
rootLogger.level=info
rootLogger.appenderRef.file.ref=file
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The cluster id and ports that a broker keeps over restarts, for its data and clients.

    ``proxied``: further listeners of node 1, each with the port that it advertises, on which a
    proxy listens.
    """

    cluster: str  # 22 characters: a UUID in URL-safe base64
    port: int
    controller_port: int
    others: tuple[tuple[int, int], ...] = ()  # both ports of nodes 2 and up
    proxied: tuple[tuple[int, int], ...] = ()

    @property
    def nodes(self) -> tuple[tuple[int, int], ...]:
        """The ports of every node: for clients, for controllers."""
        return ((self.port, self.controller_port), *self.others)

    @property
    def bootstrap(self) -> str:
        """The addresses for clients, separated by commas."""
        return ",".join(f"127.0.0.1:{port}" for port, _ in self.nodes)


@dataclass(frozen=True, slots=True)
class Home:
    """The files of one node of the local broker; node 1 has the home itself."""

    path: Path
    is_default: bool = False  # whether it is the per-user home

    def node(self, number: int) -> "Home":
        """Return the home of a node, from 1 on."""
        return self if number == 1 else Home(self.path / f"node-{number}")

    @property
    def data(self) -> Path:
        return self.path / "data"

    @property
    def log(self) -> Path:
        return self.path / "broker.log"

    @property
    def console(self) -> Path:
        """The output of the Java process: a failed start, a crash."""
        return self.path / "console.log"

    @property
    def identity(self) -> Path:
        return self.path / "identity.json"

    @property
    def state(self) -> Path:
        return self.path / "running.json"

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def server_properties(self) -> Path:
        return self.path / "server.properties"

    @property
    def log4j_properties(self) -> Path:
        return self.path / "log4j2.properties"


def home_at(path: Path | None, env: Mapping[str, str] = os.environ) -> Home:
    """Return the home at ``path``, else at HEADRACE_HOME, else in the per-user data directory."""
    if path is not None:
        return Home(path.absolute())
    if env.get("HEADRACE_HOME"):
        return Home(Path(env["HEADRACE_HOME"]).absolute())
    return Home(data_directory(env) / "broker", is_default=True)


def server_properties(home: Home, identity: Identity, number: int = 1) -> str:
    """Return the configuration of one node: loopback only."""
    port, controller_port = identity.nodes[number - 1]
    voters = enumerate((controller for _, controller in identity.nodes), 1)
    copies = len(identity.nodes)
    proxied = identity.proxied if number == 1 else ()
    one = _SERVER.format(
        node=number,
        port=port,
        controller_port=controller_port,
        proxied="".join(f",PROXIED{i}://127.0.0.1:{at}" for i, (at, _) in enumerate(proxied)),
        proxies="".join(f",PROXIED{i}://127.0.0.1:{at}" for i, (_, at) in enumerate(proxied)),
        protocols="".join(f",PROXIED{i}:PLAINTEXT" for i in range(len(proxied))),
        voters=",".join(f"{node}@127.0.0.1:{controller}" for node, controller in voters),
        copies=copies,
        in_sync=max(1, copies - 1),
        data=home.node(number).data,
        max_record_bytes=MAX_RECORD_BYTES,
    )
    return one + (_ALONE if copies == 1 else _SEVERAL)


def log4j_properties(home: Home) -> str:
    """Return the log configuration: a new file per start, three older files, 10 MB each at most."""
    return _LOG4J.format(log=home.log)


def format_command(java: JavaRuntime, home: Home, identity: Identity) -> list[str]:
    """Return the command that formats an empty data directory."""
    # It ends within a second or two: optimised code would not pay.
    heap = ["-Xmx128m", "-XX:TieredStopAtLevel=1", *java.recording()]
    tool = ["kafka.tools.StorageTool", "format", "-t", identity.cluster]
    return [*java.command(*heap, *_both(home)), *tool, "-c", str(home.server_properties)]


def serve_command(java: JavaRuntime, home: Home, nodes: int = 1) -> list[str]:
    """Return the command that runs a broker of this many nodes, or one of them."""
    heap = ["-Xms128m", "-Xmx512m", "-XX:+ExitOnOutOfMemoryError"]
    if nodes > 1:
        # The optimising compilers of several nodes would take the cores when one is restarted.
        heap.append("-XX:TieredStopAtLevel=1")
    return [*java.command(*heap, *_both(home)), "kafka.Kafka", str(home.server_properties)]


def _both(home: Home) -> list[str]:
    # The serial collector: on two cores the default one takes threads and memory from the workers.
    return ["-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={home.log4j_properties}"]
