"""Completions from a server in this process, scripted by each test, over real HTTP."""

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from aiohttp import web

from headrace.model_servers.openai import MOST_LINES, OpenAi, events
from headrace.model_servers.server_requests import ServerFault
from operators.models.model_errors import BadArguments, BadOperator
from operators.timed_batch import OutOfTime, TimedBatch

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """A server whose completions ``answer`` makes; ``bodies`` records its requests."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.left = threading.Event()  # a client has closed the connection of its request
        self.answer: Handler = self.echo
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._ready.wait()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._completions)
        app.router.add_get("/v1/models", self._models)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        self._ended = asyncio.Event()
        self._ready.set()
        await self._ended.wait()
        await runner.cleanup()

    async def _models(self, _: web.Request) -> web.Response:
        return web.Response(status=500)  # as `transformers serve` without a network

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        return await self.answer(request)

    async def echo(self, request: web.Request) -> web.StreamResponse:
        """Stream the words of the last message, ``max_tokens`` of them at most."""
        body = self.bodies[-1]
        words = body["messages"][-1]["content"].split()[: body["max_tokens"]]
        return await sent(request, [*map(a_delta, words), a_delta("", "stop"), b"data: [DONE]\n\n"])

    async def hang(self, request: web.Request) -> web.StreamResponse:
        """Stream one word, then nothing until the client disconnects."""
        try:
            await sent(request, [a_delta("so")])
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.left.set()
            raise
        raise AssertionError

    def close(self) -> None:
        """End the server."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()
        self._loop.close()


def a_delta(text: str, finish: str | None = None) -> bytes:
    choice = {"delta": {"content": text + " " * bool(text)}, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


async def sent(request: web.Request, parts: list[bytes]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for part in parts:
        await response.write(part)
    return response


def says(*parts: bytes) -> Handler:
    """Return a server that streams exactly these bytes."""
    return lambda request: sent(request, list(parts))


def answers(status: int, text: str) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text=text)

    return answer


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def server(running: Server) -> Server:
    running.bodies.clear()
    running.left.clear()
    running.answer = running.echo
    return running


@pytest.fixture
def operator(server: Server) -> OpenAi:
    return loaded(server)


def loaded(server: Server, **more: Any) -> OpenAi:
    made = OpenAi(server.url, "small", **more)
    made.load("cpu")
    return made


def test_every_value_is_one_request_and_one_output(server: Server, operator: OpenAi) -> None:
    assert operator.predict(["one two", b"three"]) == ["one two ", "three "]
    assert len(server.bodies) == 2
    assert {each["stream"] for each in server.bodies} == {True}


def test_the_requests_of_a_batch_are_under_way_at_once(server: Server) -> None:
    waiting: list[asyncio.Event] = []

    async def together(request: web.Request) -> web.StreamResponse:
        waiting.append(asyncio.Event())
        if len(waiting) == 3:
            for each in waiting:
                each.set()
        await waiting[len(waiting) - 1].wait()
        return await sent(request, [a_delta("here", "stop")])

    server.answer = together
    assert loaded(server).predict(["a", "b", "c"]) == ["here "] * 3


def test_max_tokens_bounds_what_a_variant_writes(server: Server) -> None:
    text = "one two three four"
    assert loaded(server, max_tokens=2).predict([text]) == ["one two "]
    assert loaded(server, max_tokens=4).predict([text]) == ["one two three four "]


def test_a_prompt_may_be_messages_and_fields_go_with_it(server: Server) -> None:
    operator = loaded(server, system="Be brief.", parameters={"temperature": 0.5, "seed": 7})
    operator.predict(["hello", [{"role": "user", "content": "as it is"}]])
    by_length = sorted((each["messages"] for each in server.bodies), key=len)
    assert by_length == [
        [{"role": "user", "content": "as it is"}],
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}],
    ]
    assert {(each["temperature"], each["seed"]) for each in server.bodies} == {(0.5, 7)}


def test_stream_is_closed_at_its_deadline_and_the_server_notices(
    server: Server, operator: OpenAi
) -> None:
    server.answer = server.hang
    (output,) = operator.predict(TimedBatch(["never"], [0.05]))
    assert isinstance(output, OutOfTime)
    assert re.search(r"had not finished within \d+ ms", str(output))
    assert server.left.wait(10)


def test_late_item_does_not_delay_others_and_is_not_requested(
    server: Server, operator: OpenAi
) -> None:
    late, good = operator.predict(TimedBatch(["late", "good"], [-0.1, 10.0]))
    assert (type(late), good, len(server.bodies)) == (OutOfTime, "good ", 1)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (answers(429, '{"error": "too many"}'), "answered 429: .*too many"),
        (answers(503, "loading\nthe model"), "answered 503: loading the model"),
        (answers(500, ""), "answered 500"),
        (answers(200, ""), "ended early, after 0 characters"),
        (answers(200, "<html>no stream</html>"), "ended early"),
        (says(b"data: {garbage\n\n"), "no completion .*garbage"),
        (says(b'data: {"choices": 3}\n\n'), "no completion"),
        (says(b"data: \xff\xfe\n\n"), "no completion"),
        (says(b'data: {"error": ' + b"[" * 5000 + b"]" * 5000 + b"}\n\n"), "no completion"),
        (says(b'data: {"error": {"message": "out of memory"}}\n\n'), "broke off: .*out of memory"),
        (says(a_delta("half"), a_delta("", "abort"), b"data: [DONE]\n\n"), "broke off: .*'abort'"),
        (says(a_delta("half")), "ended early, after 5 characters"),
        (says(b"data: " + b"x" * 3_000_000), "more than 1048576 bytes"),
    ],
)
def test_what_is_no_completion_fails_the_item_with_the_servers_words_and_is_not_repeated(
    server: Server, operator: OpenAi, answer: Handler, told: str
) -> None:
    server.answer = answer
    (output,) = operator.predict(["x"])
    with pytest.raises(ServerFault, match=told):
        raise output
    assert len(server.bodies) == 1
    server.answer = server.echo
    assert operator.predict(["and still"]) == ["and still "]


def test_a_server_that_goes_away_fails_the_item() -> None:
    server = Server()
    operator = loaded(server)
    server.close()
    (output,) = operator.predict(["x"])
    with pytest.raises(ServerFault, match=r"Cannot connect to host \S+ \[Connect call failed"):
        raise output


def test_a_server_that_is_not_there_is_an_error_of_loading() -> None:
    with pytest.raises(BadOperator, match=r"no server answers at http://127.0.0.1:1/v1 within 0"):
        OpenAi("http://127.0.0.1:1/v1", "m", ready_within_s=0.05).load("cpu")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (3.5, "the prompt is float; it must be text or messages"),
        (b"\xff", "'utf-8' codec can't decode byte 0xff"),
        ([{"role": "user", "content": b"raw"}], "Object of type bytes is not JSON serializable"),
    ],
)
def test_invalid_prompt_fails_alone_without_a_request(
    server: Server, operator: OpenAi, value: Any, told: str
) -> None:
    wrong, right = operator.predict([value, "right"])
    assert f"cannot be asked: {told}" in str(wrong)
    assert (right, len(server.bodies)) == ("right ", 1)


def picky(value: str) -> str:
    """A user's function that fails for one text in two."""
    return {"right": "right", "right ": "right"}[value]


@pytest.mark.parametrize(("where", "asked"), [("before", 1), ("after", 2)])
def test_an_error_of_a_users_function_is_the_output_of_its_item_alone(
    server: Server, where: str, asked: int
) -> None:
    wrong, right = loaded(server, **{where: f"{__name__}:picky"}).predict(["wrong", "right"])
    assert (type(wrong), right.strip(), len(server.bodies)) == (KeyError, "right", asked)
    assert wrong.__traceback__ is not None  # of which the reason shows the user's frames


def test_an_address_and_a_token_that_cannot_be_used_are_refused_at_once() -> None:
    with pytest.raises(BadArguments, match="url is 'localhost:8000'; write such as http://"):
        OpenAi("localhost:8000", "m")
    with pytest.raises(BadArguments, match="NO_SUCH_VARIABLE, which is not set"):
        OpenAi("http://localhost/v1", "m", token="NO_SUCH_VARIABLE")


def test_the_token_goes_with_every_request(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "secret")
    seen: list[str | None] = []

    async def note(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers.get("Authorization"))
        return await server.echo(request)

    server.answer = note
    assert loaded(server, token="A_TOKEN").predict(["x"]) == ["x "]
    assert seen == ["Bearer secret"]


def test_a_server_that_floods_lines_leaves_the_other_requests_their_turns() -> None:
    """4 MiB of empty lines held up the requests of a batch, and their deadlines, for 2.4 s."""

    async def flood() -> AsyncIterator[bytes]:
        for _ in range(10 * MOST_LINES):
            yield b"\n"

    async def turns() -> int:
        async def read() -> None:
            async for _ in events(flood()):
                raise AssertionError

        reading, count = asyncio.create_task(read()), 0
        while not reading.done():
            count += 1
            await asyncio.sleep(0)
        return count

    assert asyncio.run(turns()) > 10
