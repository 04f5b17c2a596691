"""The dashboard in a real headless Chromium, under load, with a killed worker and a changed
policy."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.cluster.run_state import read_state
from headrace.processes import run_directory
from tests.interop.environments import python_of
from tests.interop.missing_programs import missing

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
PANELS = (
    "Queries by outcome", "Latency", "Plans, commands, nodes", "Plan: tasks and variants",
    "Queues by slot", "Devices and cost", "Queries that missed the deadline", "Variants", "Nodes",
)  # fmt: skip

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.fixture(scope="session", autouse=True)
def chromium() -> None:
    """Find Chromium before a broker is started."""
    if not CHROMIUM:
        missing("needs chromium: apt install chromium")


class Page:
    """Drive the browser from its own environment."""

    def __init__(self, folder: Path) -> None:
        python = python_of("browser")
        assert python.exists(), f"{python} is not there; `make interop` makes it"
        self._driver = subprocess.Popen(
            [python, HERE / "browser_calls.py", CHROMIUM, folder],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __call__(self, do: str, **more: Any) -> Any:
        assert self._driver.stdin is not None
        assert self._driver.stdout is not None
        self._driver.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self._driver.stdin.flush()
        return json.loads(self._driver.stdout.readline())

    def close(self) -> None:
        self._driver.communicate(timeout=30)


def headrace(*arguments: str, env: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *arguments],
        capture_output=True, text=True, env=env, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def emulated(folder: Path) -> Path:
    """Write the words example with two fixed plans and three CPU devices."""
    example = ROOT / "examples" / "words"
    shutil.copy(example / "words.py", folder)
    file = yaml.safe_load((example / "pipeline.yaml").read_text())
    file["policy"] = "even"
    file["policies"] = {
        "even": {"kind": "static"},
        "other": {"kind": "static", "replicas": {"split/plain": 1, "shout/plain": 1}},
    }
    file["cluster"] = {"devices": {"cpu": 3}, "dashboard": {"port": 0}}
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(file))
    return folder / "pipeline.yaml"


@pytest.fixture(scope="module")
def env(broker: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    home = tmp_path_factory.mktemp("dashboard-home")
    return {**os.environ, "HEADRACE_HOME": str(home), "HEADRACE_BOOTSTRAP": broker}


@pytest.fixture(scope="module")
def running(env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yield the pipeline's file and the address of its page while queries arrive."""
    file = emulated(tmp_path_factory.mktemp("dashboard"))
    told = json.loads(headrace("up", str(file), "--detach", "--json", env=env))
    load = subprocess.Popen(
        [sys.executable, "-m", "headrace", "load", str(file), "--phases", "steady=280s@20"],
        env=env, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield file, told["dashboard"]
    finally:
        load.terminate()
        load.wait(30)
        headrace("down", str(file), env=env)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    made = Page(tmp_path_factory.mktemp("pictures"))
    yield made
    made.close()


def test_the_browser_gets_401_without_the_token(running: Any, page: Page) -> None:
    assert page("open", url=running[1].split("?")[0], width=1280, theme="light") == 401


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_panel_is_drawn_and_fits(running: Any, page: Page, width: int, theme: str) -> None:
    assert page("open", url=running[1], width=width, theme=theme) == 200
    page("wait", **{"in": "#variants-table", "for": "shout/plain"})
    seen = page("look")
    assert [each for each in PANELS if each not in seen["text"]] == []
    assert (seen["wide"], seen["errors"]) == (width, [])
    assert (seen["cookies"], "token" in seen["url"]) == ("", False)
    assert len(seen["hues"]) == 6
    assert min(seen["hues"]) > 8  # number of colours in a chart; an empty canvas has one
    dark = sum(map(int, seen["ground"].removeprefix("rgb(").removesuffix(")").split(","))) < 384
    assert dark == (theme == "dark")


def test_keys_move_the_focus_and_change_theme_and_range(running: Any, page: Page) -> None:
    page("open", url=running[1], width=1280, theme="light")
    page("press", keys=["2"])
    assert page("look")["focus"] == "Latency"
    page("press", keys=["t", "r", "p"])
    seen = page("look")
    assert (seen["theme"], "10 min" in seen["text"], "updates paused" in seen["text"]) == (
        "dark", True, True,
    )  # fmt: skip
    page("press", keys=["p", "?"])
    assert "pause or resume updates" in page("look")["text"]


def test_a_killed_worker_and_a_change_of_policy_are_seen(
    running: Any, page: Page, env: dict[str, str]
) -> None:
    file, url = running
    page("open", url=url, width=1280, theme="light")
    state = read_state(run_directory("words", env))
    assert state is not None
    worker = next(role for role in state.roles if role.name == "cpu-1")
    os.kill(worker.pid, signal.SIGSTOP)  # after SIGKILL the supervisor would restart it at once
    try:
        page("wait", **{"in": "#troubles", "for": "cpu-1 is silent"})
        page("wait", **{"in": "#events", "for": "cpu-1 is silent"})
        page("wait", **{"in": "#nodes-table", "for": "silent"})
    finally:
        os.kill(worker.pid, signal.SIGKILL)
    page("wait", **{"in": "#events", "for": "cpu-1 reports"})
    headrace("policy", "apply", str(file), "other", env=env)
    page("wait", **{"in": "#cards", "for": "other"})
    page("wait", **{"in": "#events", "for": "apply-policy"})
    page("wait", **{"in": "#events", "for": "policy other"})
    assert page("look")["errors"] == []
