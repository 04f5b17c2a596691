"""The dashboard's process of a running pipeline controls access and streams events."""

import http.client
import json
import os
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from headrace import Client
from headrace.dashboard.page_access import POLICY
from tests.applied_deltas import applied
from tests.integration.brought_up import brought_up

ROOT = Path(__file__).parents[2]
WORDS = ROOT / "examples" / "words"
EVENTS = 20  # one a second: the last one shows what was sent

pytestmark = pytest.mark.kafka


@dataclass(frozen=True)
class Page:
    """A dashboard's address, and the token that it printed."""

    host: str
    port: int
    token: str

    @contextmanager
    def get(
        self, path: str, cookie: str = "", host: str = ""
    ) -> Iterator[http.client.HTTPResponse]:
        """Return the response to a request, with its body unread."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        headers = {**({"Cookie": cookie} if cookie else {}), **({"Host": host} if host else {})}
        try:
            connection.request("GET", path, headers=headers)
            with connection.getresponse() as response:
                yield response
        finally:
            connection.close()

    def status(self, path: str, cookie: str = "", host: str = "") -> int:
        with self.get(path, cookie, host) as response:
            assert response.headers["Content-Security-Policy"] == POLICY
            return response.status


@pytest.fixture(scope="module")
def pipeline(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run the words example under a unique name, with a dashboard."""
    folder = tmp_path_factory.mktemp("dashboard")
    file = folder / "pipeline.yaml"
    words = yaml.safe_load((WORDS / "pipeline.yaml").read_text())
    file.write_text(yaml.safe_dump({**words, "name": "shown", "slo": "20s"}))
    (folder / "words.py").write_text((WORDS / "words.py").read_text())
    with brought_up(file, environment(folder, broker)):
        yield file


def environment(folder: Path, broker: str) -> dict[str, str]:
    return {**os.environ, "HEADRACE_HOME": str(folder), "HEADRACE_BOOTSTRAP": broker}


@contextmanager
def served(broker: str, *pipelines: Path) -> Iterator[Page]:
    """Run ``headrace dashboard``; yield its address once it is printed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "dashboard", *map(str, pipelines), "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env=environment(pipelines[0].parent, broker),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        printed = process.stdout.readline()
        assert "?token=" in printed, process.communicate(timeout=30)
        url = urllib.parse.urlsplit(next(w for w in printed.split() if "://" in w))
        token = urllib.parse.parse_qs(url.query)["token"][0]
        yield Page(str(url.hostname), int(url.port or 0), token)
    finally:
        process.terminate()
        process.communicate(timeout=30)


@pytest.fixture(scope="module")
def page(pipeline: Path, broker: str) -> Iterator[Page]:
    with served(broker, pipeline) as found:
        yield found


def cookie_of(page: Page) -> str:
    """Return the cookie that a browser gets from the printed address."""
    with page.get(f"/?token={page.token}") as response:
        assert (response.status, response.headers["Location"]) == (303, "/")
        return response.headers["Set-Cookie"].partition(";")[0]


@pytest.fixture(scope="module")
def cookie(page: Page) -> str:
    return cookie_of(page)


def test_nothing_is_shown_without_the_token_or_under_another_name(page: Page, cookie: str) -> None:
    found = {
        "page": page.status("/"), "stream": page.status("/events"),
        "wrong token": page.status("/?token=0123456789abcdef"),
        "wrong cookie": page.status("/view.json", cookie[:-1]),
        "rebound name": page.status("/view.json", cookie, "attacker.example"),
        "own name": page.status("/view.json", cookie, f"localhost:{page.port}"),
    }  # fmt: skip
    assert found == {
        "page": 401, "stream": 401, "wrong token": 401, "wrong cookie": 401, "rebound name": 421,
        "own name": 200,
    }  # fmt: skip


def test_the_cookie_gives_access_to_the_page_and_its_files(page: Page, cookie: str) -> None:
    for path in ("/", "/main.js", "/page.css", "/palette.css", "/vendor/echarts.min.js"):
        with page.get(path, cookie) as response:
            assert (response.status, len(response.read()) > 100) == (200, True), path


def events(response: http.client.HTTPResponse) -> Iterator[tuple[str, Any]]:
    """Yield the kind and value of each event of a stream."""
    kind = ""
    for line in response:
        name, _, text = line.decode().rstrip("\n").partition(": ")
        if name == "event":
            kind = text
        elif name == "data":
            yield kind, json.loads(text)


def highest(view: Any, figure: str) -> float:
    """Return the highest rate among all seconds of the view, or 0.0."""
    at = 1 + view["shown"]["figures"].index(figure)
    return max((row[at] or 0.0 for row in view["shown"]["rates"]), default=0.0)


def test_deltas_bring_the_queries_that_are_answered_meanwhile(
    page: Page, cookie: str, broker: str
) -> None:
    with page.get("/events", cookie) as stream:
        seen = events(stream)
        kind, view = next(seen)
        assert (kind, [t["name"] for t in view["shown"]["tasks"]]) == ("view", ["split", "shout"])
        assert (highest(view, "arrived_qps"), highest(view, "answered_qps")) == (0.0, 0.0)
        with Client(broker, "shown") as client:
            for word in (b"one", b"two", b"three"):
                assert client.ask(word, deadline=20.0).outcome == "answered"
        for _ in range(EVENTS):
            kind, change = next(seen)
            assert kind == "delta"
            view = applied(view, change)
            if highest(view, "answered_qps") and highest(view, "arrived_qps"):
                break  # arrivals come from reports, answers from their topic
        assert highest(view, "arrived_qps") > 0
        assert highest(view, "answered_qps") > 0
    with page.get("/view.json", cookie) as response:
        assert highest(json.load(response), "answered_qps") > 0


def test_a_pipeline_whose_topics_were_deleted_has_a_problem_and_others_go_on(
    pipeline: Path, broker: str, tmp_path: Path
) -> None:
    """Looks at the broker without an answer were skipped: the page showed old figures as new."""
    gone = tmp_path / "gone.yaml"
    gone.write_text(yaml.safe_dump({**yaml.safe_load(pipeline.read_text()), "name": "gone"}))
    (tmp_path / "words.py").write_text((WORDS / "words.py").read_text())
    with served(broker, pipeline, gone) as page, page.get("/events", cookie_of(page)) as stream:
        admin = AdminClient({"bootstrap.servers": broker})
        own = [name for name in admin.list_topics(timeout=30).topics if name.startswith("gone.")]
        for each in admin.delete_topics(own).values():
            each.result(30)
        seen = events(stream)
        _, view = next(seen)
        for _ in range(EVENTS):
            view = applied(view, next(seen)[1])
            if "the broker did not say how much work waits" in str(view["gone"]["troubles"]):
                break
        assert "the broker did not say how much work waits" in view["gone"]["troubles"][0]
        assert view["shown"]["troubles"] == []
