"""The dashboard server over real sockets: access control, and the data sent to viewers."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import CookieJar
from aiohttp.test_utils import TestClient, TestServer

from headrace.dashboard.page_access import LEAST_TOKEN, POLICY, PageAccess, page_access
from headrace.dashboard.page_server import STATIC, PageServer
from headrace.dashboard.view_delta import SERIES
from headrace.dashboard.viewers import BEHIND, MOST_VIEWERS, TooManyViewers, Viewers
from headrace.errors import DashboardError
from tests.applied_deltas import applied

TOKEN = "a token of two dozen signs"
ACCESS = PageAccess(TOKEN, frozenset({"localhost", "127.0.0.1"}))
# ECharts 6.1.0, dist/echarts.min.js as npm has it.
ECHARTS = "b66b25aeb4df84e33199dc21694014d336d222cbd9deb0e5a7c14bd6aa0d0fd0"


def a_view(second: int) -> dict:
    rows = {name: [] for name in SERIES}
    return {"p": {"now": {"epoch": second}, **rows, "rates": [[float(second), 1.0]]}}


def with_client(test: Callable[[TestClient, Viewers], Awaitable[None]]) -> None:
    async def run() -> None:
        viewers = Viewers(a_view(0))
        server = TestServer(PageServer(viewers, ACCESS).app())
        async with TestClient(server, cookie_jar=CookieJar(unsafe=True)) as client:
            await test(client, viewers)

    asyncio.run(run())


def test_the_token_is_changed_for_a_cookie_that_lets_in() -> None:
    async def test(client: TestClient, _: Viewers) -> None:
        assert (await client.get("/")).status == 401
        assert (await client.get("/?token=wrong")).status == 401
        first = await client.get("/", params={"token": TOKEN}, allow_redirects=False)
        assert (first.status, first.headers["Location"]) == (303, "/")
        cookie = first.headers["Set-Cookie"]
        assert all(each in cookie for each in ("HttpOnly", "SameSite=Strict", "Path=/"))
        page = await client.get("/")
        assert (page.status, "<!doctype html>" in await page.text()) == (200, True)

    with_client(test)


@pytest.mark.parametrize("path", ["/", "/events", "/view.json", "/main.js", "/palette.css"])
def test_nothing_is_shown_without_the_cookie(path: str) -> None:
    async def test(client: TestClient, _: Viewers) -> None:
        response = await client.get(path)
        assert (response.status, response.headers["Content-Security-Policy"]) == (401, POLICY)

    with_client(test)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_foreign_host_name_is_refused_even_with_the_token(host: str) -> None:
    async def test(client: TestClient, _: Viewers) -> None:
        response = await client.get("/", params={"token": TOKEN}, headers={"Host": host})
        assert (response.status, "Set-Cookie" in response.headers) == (421, False)

    with_client(test)


def test_only_reading_is_possible() -> None:
    async def test(client: TestClient, _: Viewers) -> None:
        await client.get("/", params={"token": TOKEN})
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            response = await client.request(method, "/view.json")
            assert response.status == 405

    with_client(test)


@pytest.mark.parametrize("path", ["/../page_server.py", "/%2e%2e/page_server.py", "/vendor/", "/x"])
def test_only_the_files_of_the_page_are_served(path: str) -> None:
    async def test(client: TestClient, _: Viewers) -> None:
        await client.get("/", params={"token": TOKEN})
        assert (await client.get(path)).status == 404

    with_client(test)


def test_every_file_that_the_page_names_is_served_with_its_kind() -> None:
    async def test(client: TestClient, _: Viewers) -> None:
        await client.get("/", params={"token": TOKEN})
        kinds = {}
        for path in (
            "/page.css",
            "/palette.css",
            "/main.js",
            "/vendor/echarts.min.js",
            "/icon.svg",
        ):
            response = await client.get(path)
            kinds[path] = (response.status, response.headers["Content-Type"].split(";")[0])
        assert kinds == {
            "/page.css": (200, "text/css"),
            "/palette.css": (200, "text/css"),
            "/main.js": (200, "text/javascript"),
            "/vendor/echarts.min.js": (200, "text/javascript"),
            "/icon.svg": (200, "image/svg+xml"),
        }

    with_client(test)


def test_a_viewer_gets_the_view_and_then_what_is_new() -> None:
    async def test(client: TestClient, viewers: Viewers) -> None:
        await client.get("/", params={"token": TOKEN})
        async with client.get("/events") as stream:
            assert stream.headers["Content-Security-Policy"] == POLICY
            view = await an_event(stream.content)
            viewers.show(a_view(1))
            change = await an_event(stream.content)
            assert (view, applied(view, change)) == (a_view(0), a_view(1))
            assert await (await client.get("/view.json")).json() == a_view(1)

    with_client(test)


async def an_event(content: asyncio.StreamReader) -> dict:
    text = await content.readuntil(b"\n\n")
    return json.loads(text.decode().split("data: ")[1])


def test_a_viewer_that_does_not_read_is_cut_off_and_others_go_on() -> None:
    async def run() -> None:
        viewers = Viewers(a_view(0))
        with viewers.joined() as slow, viewers.joined() as quick:
            for second in range(1, BEHIND + 2):
                viewers.show(a_view(second))
                while quick.qsize():
                    assert quick.get_nowait() is not None
            assert (slow.qsize(), slow.get_nowait(), len(viewers)) == (1, None, 1)

    asyncio.run(run())


def test_all_viewers_get_the_same_bytes_and_their_number_has_a_limit() -> None:
    async def run() -> None:
        viewers = Viewers(a_view(0))
        with viewers.joined() as one, viewers.joined() as two:
            viewers.show(a_view(1))
            assert one.get_nowait() == two.get_nowait()
            assert one.get_nowait() is two.get_nowait()
        joined = [viewers.joined() for _ in range(MOST_VIEWERS)]
        for each in joined:
            each.__enter__()
        with pytest.raises(TooManyViewers), viewers.joined():
            pass

    asyncio.run(run())


def test_non_local_address_requires_a_user_defined_token(tmp_path: Path) -> None:
    with pytest.raises(DashboardError, match="name it with --token-file"):
        page_access("0.0.0.0", None)
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    access = page_access("0.0.0.0", token, ("Board.example",))
    assert access.admits("0123456789abcdef")
    assert access.knows("board.example:8080")
    token.write_text("0123456789abcdef\n", encoding="utf-8-sig")
    assert page_access("0.0.0.0", token).token == "0123456789abcdef"
    token.write_text("short")
    with pytest.raises(DashboardError, match=rf"5 characters; write one of {LEAST_TOKEN}"):
        page_access("0.0.0.0", token)
    with pytest.raises(DashboardError, match="No such file"):
        page_access("127.0.0.1", tmp_path / "none")


def test_tokens_differ_between_starts() -> None:
    assert page_access("127.0.0.1", None).token != page_access("::1", None).token


def test_the_chart_library_is_the_one_that_was_released() -> None:
    vendor = STATIC / "vendor"
    assert hashlib.sha256((vendor / "echarts.min.js").read_bytes()).hexdigest() == ECHARTS
    assert "Version 2.0, January 2004" in (vendor / "echarts.LICENSE").read_text()


def test_the_page_asks_for_nothing_from_elsewhere() -> None:
    own = [path for path in STATIC.glob("*") if path.suffix in (".html", ".js", ".css")]
    text = "".join(path.read_text() for path in own)
    assert len(own) >= 5
    assert [each for each in ("http://", "https://", "style=", "innerHTML", "eval(")
            if each in text] == []  # fmt: skip
