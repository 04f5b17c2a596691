"""The repository keeps its own rules: locks, licences, weights and imports."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
import yaml

from headrace.broker.jar_lock import ROOTS
from headrace.cli.gateway import gateway
from headrace.cli.main import headrace
from headrace.cli.roles import control, egress, ingress, worker
from headrace.cluster.local_run import DOWN_WITHIN_S
from headrace.cluster.supervisor import HUNG_S
from headrace.kubernetes.pods import GRACE_S
from streams.topics import MAX_RECORD_BYTES

ROOT = Path(__file__).parents[2]
LOCKS = ("requirements.lock", "requirements-bootstrap.lock")
PICKLED = {".pkl", ".pickle", ".pt", ".pth", ".joblib", ".ckpt", ".npy", ".bin"}
WEIGHTS = {".safetensors", ".onnx", ".txt", ".model"}


def pyproject() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def dependencies() -> set[str]:
    """Return the names of all dependencies, including the build backend, which runs without
    isolation."""
    project = pyproject()["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(each for extra in extras for each in extra)]
    wanted += pyproject()["build-system"]["requires"]
    return {re.split(r"[\[<>=]", each)[0].lower() for each in wanted} - {"headrace"}


def tracked() -> list[Path]:
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in done.stdout.split("\0") if name]


def entries(lock: str) -> dict[str, list[str]]:
    """Return each pinned requirement of a lock file with its hashes."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / lock).read_text().splitlines():
        if line and not line.startswith((" ", "#")):
            name = line.split(" \\")[0]
            found[name] = []
        elif "--hash=" in line:
            found[name].append(line.split("--hash=")[1].removesuffix(" \\"))
    return found


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_package_has_one_version_and_hashes(lock: str) -> None:
    pattern = re.compile(r"[a-z0-9-]+(\[[a-z,]+\])?==\S+( ; .+)?")
    wrong = [
        name
        for name, hashes in entries(lock).items()
        if not pattern.fullmatch(name)
        or not hashes
        or not all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes)
    ]
    assert (wrong, len(entries(lock)) > 0) == ([], True)


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_registry(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert re.findall(r"https?://\S+|--(?:extra-)?index-url|--find-links|@ file", text) == []


def test_the_lock_holds_every_dependency_and_the_builder() -> None:
    locked = {re.split(r"[\[=]", name)[0] for name in entries("requirements.lock")}
    assert dependencies() - locked == set()


def test_a_dependency_has_one_release_on_every_python() -> None:
    # Tests cover one version only: plans failed on Python 3.12 with a pulp that 3.11 did not have.
    locked = [re.split(r"[\[=]", name)[0] for name in entries(LOCKS[0])]
    assert {name for name in dependencies() if locked.count(name) > 1} == set()


def test_the_package_cannot_be_uploaded_by_mistake() -> None:
    assert "Private :: Do Not Upload" in pyproject()["project"]["classifiers"]


def test_the_licence_is_there_in_full() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert pyproject()["project"]["license"] == "Apache-2.0"
    assert ("Version 2.0, January 2004" in text, text.count("\n")) == (True, 202)


def test_the_rules_of_import_hold() -> None:
    contracts = pyproject()["tool"]["importlinter"]["contracts"]
    assert [each["name"] for each in contracts] == [
        "one way down",
        "decisions know neither Kafka nor clocks",
        "the two drivers are twins, not parents",
        "model adapters are handed in",
        "control: layers",
        "compass: a search knows no schedule, a schedule no search",
        "headrace: layers",
        "gateway: the protocol is pure",
        "plans are checked by code that did not make them",
        "plans are not made by code that checks them",
    ]
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_editable_install_puts_the_folder_on_the_path() -> None:
    """Otherwise setuptools installs a finder, and in the parent folder of a clone the clone's own
    folder, named headrace, is imported in place of the package."""
    assert pyproject()["tool"]["setuptools"]["package-dir"] == {"": "."}


def test_every_package_is_shipped() -> None:
    listed = pyproject()["tool"]["setuptools"]["packages"]
    there = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in tracked()
        if path.name == "__init__.py" and path.parts[len(ROOT.parts)] != "examples"
    }
    assert sorted(listed) == sorted(p for p in there if p.partition(".")[0] != "benchmarks")


def test_weights_are_small_and_never_pickled() -> None:
    files = [path for path in tracked() if path.exists()]
    weights = [path for path in files if path.suffix in WEIGHTS and "weights" in path.parts]
    assert sum(path.stat().st_size for path in weights) <= 6_000_000
    assert [str(path) for path in files if path.suffix in PICKLED] == []
    pickling = re.compile(r"^\s*(?:import|from) (?:pickle|joblib|dill|cloudpickle)\b", re.MULTILINE)
    shipped = (path for path in files if path.relative_to(ROOT).parts[0] != "tests")
    sources = [path for path in shipped if path.suffix == ".py"]
    assert [str(path) for path in sources if pickling.search(path.read_text())] == []


def test_continuous_integration_runs_the_tests_that_a_developer_runs() -> None:
    runner = ROOT / ".ci" / "run"
    assert runner.stat().st_mode & 0o111
    assert runner.read_text().rstrip().endswith("exec make test")


@pytest.mark.parametrize("target", ["demo", "test", "check"])
def test_make_fills_the_environment_first(target: str) -> None:
    rule = re.search(rf"^{target}: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert rule is not None
    assert rule[1] == "$(FILLED)"


MOUNTED = "/opt/pipeline/pipeline.yaml"


def test_the_broker_of_compose_keeps_its_data_in_a_volume() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    broker = compose["services"]["broker"]
    assert broker["volumes"] == ["broker-data:/var/lib/kafka/data"]
    assert broker["environment"]["KAFKA_LOG_DIRS"] == "/var/lib/kafka/data"
    assert "broker-data" in compose["volumes"]


UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
PIPELINE_UNIT = "headrace.service"  # of `headrace up`, which stops its roles itself


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_a_unit_runs_a_command_that_exists(unit: Path) -> None:
    line = re.search(r"^ExecStart=/opt/headrace/\.venv/bin/headrace (\S+)", unit.read_text(), re.M)
    assert line is not None
    assert line[1] in headrace.commands


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_a_unit_is_restarted_after_it_hangs(unit: Path) -> None:
    # A role notifies systemd with its first heartbeat, and sends none until the broker answers.
    lines = unit.read_text().splitlines()
    told = {"Type=notify", f"WatchdogSec={HUNG_S:g}", "TimeoutStartSec=infinity", "Restart=always"}
    assert told <= set(lines)


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_a_unit_has_time_to_end_and_a_place_to_write(unit: Path) -> None:
    # A worker records there what it runs, to know after a crash; its user may have no home.
    lines = unit.read_text().splitlines()
    whole = unit.name == PIPELINE_UNIT
    assert f"TimeoutStopSec={DOWN_WITHIN_S if whole else GRACE_S:g}" in lines
    assert ("KillMode=mixed" in lines) == whole
    assert "StateDirectory=headrace" in lines
    assert "Environment=PYTHONPATH=/opt/headrace HEADRACE_HOME=/var/lib/headrace" in lines


def test_compose_runs_each_role_as_a_service_against_the_same_kafka() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    broker = services["broker"]
    version = ROOTS[0].split(":")[2]
    assert broker["image"] == f"apache/kafka:{version}"
    assert broker["environment"]["KAFKA_MESSAGE_MAX_BYTES"] == MAX_RECORD_BYTES
    roles = {name: each for name, each in services.items() if name != "broker"}
    assert sorted(roles) == ["control", "egress", "gateway", "ingress", "worker"]
    for name, role in roles.items():
        assert role["command"][:2] == [name, MOUNTED]
        assert role["volumes"] == ["${PIPELINE_DIR:-./examples/postcode}:/opt/pipeline:ro"]
        assert role["image"] == ("headrace:local" if name == "worker" else "headrace:light")
        assert {"healthcheck", "mem_limit", "logging"} <= role.keys()
        assert role["init"]  # process 1 ignores signals without a handler
        assert role["stop_grace_period"] == f"{GRACE_S}s"
        assert role["environment"]["HEADRACE_BOOTSTRAP"] == "broker:9092"
        assert role["depends_on"] == {"broker": {"condition": "service_healthy"}}
        assert (ROOT / role["build"]["context"] / "Dockerfile").is_file()


@pytest.mark.parametrize(
    "role", [control, egress, gateway, ingress, worker], ids=lambda role: role.name
)
def test_the_command_line_accepts_the_arguments_in_compose(role: click.Command) -> None:
    service = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"][role.name]
    named = ["--name", "a1b2c3"] if "--name" in str(service.get("entrypoint")) else []
    example = str(ROOT / "examples" / "postcode" / "pipeline.yaml")
    words = [example if word == MOUNTED else word for word in (*service["command"][1:], *named)]
    context = role.make_context(role.name, words, **headrace.context_settings)
    file = context.params.get("file") or context.params["files"][0]
    assert file.is_file()


def test_the_light_image_of_compose_has_no_library_of_models() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    named = re.search(r'^ARG EXTRAS="(.+)"$', (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert named is not None
    light = services["control"]["build"]["args"]["EXTRAS"]
    assert set(named[1].split()) - set(light.split()) == {"postcode"}
    assert "args" not in services["worker"]["build"]


def test_the_image_installs_by_lock_and_finds_our_packages_first() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert re.search(r"^FROM python:3\.1[123]-slim$", text, re.MULTILINE)
    installs = re.findall(r"pip install (?:[^&\n]|\\\n)+", text)
    assert len(installs) == 3
    locked = ("--require-hashes", "--build-constraint requirements.lock")
    assert [each for each in installs if not any(lock in each for lock in locked)] == []
    assert "PYTHONPATH=/opt/headrace" in text
    assert re.search(r"^USER (?!root)", text, re.MULTILINE)


def test_make_test_covers_the_files_that_use_brokers_and_models() -> None:
    found = {
        str(path.relative_to(ROOT)): set(re.findall(r"mark\.(\w+)", path.read_text()))
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
    }
    listed = subprocess.run(
        ["make", "-s", "-f", "-", "listed"], input="include Makefile\nlisted:;@echo $(MARKED)\n",
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    marked = {path for path, marks in found.items() if marks & {"kafka", "models"}}
    assert set(listed.split()) == marked
    alone = [path for path, marks in found.items() if "alone" in marks]
    assert [path for path in alone if not path.startswith("tests/integration/")] == []


def test_an_image_has_nothing_that_git_ignores() -> None:
    """After `make compiled`, an image had the modules, and not the library that they load."""
    ours = (ROOT / ".gitignore").read_text().splitlines()
    kept_out = (ROOT / ".dockerignore").read_text().splitlines()
    assert {f"**/{line.rstrip('/')}" for line in ours} <= set(kept_out)
