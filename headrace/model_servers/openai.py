"""A language model behind OpenAI's chat completions as an operator: vLLM, llama.cpp, Ollama,
``transformers serve``.

Every answer is streamed and read to its end or its item's deadline. The connection is then closed,
and the server stops computing. Requests are not retried.
"""

import asyncio
import json
import math
import time
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from typing import Any

import aiohttp
import msgspec
from aiohttp.http_exceptions import LineTooLong

from headrace.model_servers.server_requests import (
    LOOK_AGAIN_S,
    READY_WITHIN_S,
    SHOWN,
    ServerFault,
    bearer,
    function,
    server_message,
    unchanged,
)
from operators.models.model_errors import BadArguments, BadOperator
from operators.timed_batch import OutOfTime, seconds_left
from schemas.records import Value

MOST_BYTES = 1024 * 1024  # of one answer, and of one event
MOST_LINES = 100  # read in a row before the other requests of the batch have their turn
# Of a completion that the server itself ended early: vLLM's and SGLang's when they pause or stop.
BROKEN = frozenset(("abort", "error"))


class OpenAi:
    """The model ``model`` at ``url``, which ends in /v1.

    A value is the user's text, or the whole list of messages. ``max_tokens`` bounds what the model
    writes: variants of one task with different bounds are quick and brief, or slow and thorough.
    ``system`` goes before the user's text; ``parameters`` are further fields of the request
    (``temperature``: 0 unless they say otherwise). ``before`` and ``after`` are "module:function":
    from a value to text or messages, and from the model's text to the item's output. ``timeout_s``
    bounds a request whose item has no deadline, or a later one. ``token`` names an environment
    variable with a bearer token. Loading waits ``ready_within_s`` for the server.
    """

    def __init__(
        self,
        url: str,
        model: str,
        max_tokens: int = 256,
        system: str = "",
        parameters: Mapping[str, Any] | None = None,
        before: str = "",
        after: str = "",
        timeout_s: float = 60.0,
        token: str = "",
        ready_within_s: float = READY_WITHIN_S,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise BadArguments(f"url is {url!r}; write such as http://localhost:8000/v1")
        self._url = url.rstrip("/")
        self._fields = {
            "model": model, "max_tokens": max_tokens, "temperature": 0, **(parameters or {}),
            "stream": True,
        }  # fmt: skip
        self._system = system
        self._before, self._after = function(before, unchanged), function(after, unchanged)
        self._timeout_s, self._ready_within_s = timeout_s, ready_within_s
        self._headers = {"Authorization": bearer(token)} if token else {}

    def load(self, device: str) -> None:
        """Wait for the server; ``device`` is ignored: the server has its own. Raise ``BadOperator``
        if it is unreachable."""
        try:
            asyncio.run(asyncio.wait_for(self._reached(), self._ready_within_s))
        except TimeoutError:
            raise BadOperator(
                f"no server answers at {self._url} within {self._ready_within_s:g} s; start it, or "
                "correct the url"
            ) from None

    def predict(self, batch: list[Value]) -> list[Any]:
        """Return an output, or an error, for each value; all requests run at once."""
        now = time.monotonic()
        until = [now + left_s for left_s in seconds_left(batch, math.inf)]
        return asyncio.run(self._all(batch, until))

    async def _reached(self) -> None:
        async with self._session() as session:
            while True:
                try:
                    async with session.get(f"{self._url}/models"):
                        return  # with any status: not every server lists its models
                except aiohttp.ClientError:
                    await asyncio.sleep(LOOK_AGAIN_S)

    def _session(self) -> aiohttp.ClientSession:
        # One session per batch: an event loop that outlived its calls would need closing. No limit
        # of connections: a batch has a request per item. Timeouts are the items' own.
        return aiohttp.ClientSession(
            headers=self._headers,
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            read_bufsize=MOST_BYTES // 2,  # of which a line may have two
        )

    # ------------------------------------------------------------------ requests

    async def _all(self, batch: Sequence[Value], until: Sequence[float]) -> list[Any]:
        async with self._session() as session:
            return await asyncio.gather(
                *(self._one(session, *each) for each in zip(batch, until, strict=True)),
                return_exceptions=True,  # an error of ``before`` or ``after`` fails its item only
            )

    async def _one(self, session: aiohttp.ClientSession, value: Value, until_s: float) -> Any:
        """Return the output for a value, or an exception in its place; raise users' errors. The
        ``before`` of this item and those ahead of it take of the time until ``until_s``."""
        where = f"model {self._fields['model']} at {self._url}"
        prepared = self._before(value) if time.monotonic() < until_s else ""
        left_s = min(self._timeout_s, until_s - time.monotonic())
        if left_s <= 0:
            return OutOfTime(f"{where} was not asked: the deadline has passed")
        try:
            body = json.dumps({**self._fields, "messages": self._messages(prepared)}).encode()
        except (RecursionError, TypeError, ValueError) as error:
            return ValueError(f"{where} cannot be asked: {error}")
        try:
            async with asyncio.timeout(left_s):
                text = await self._completed(session, body)
        except TimeoutError:
            return OutOfTime(f"{where} had not finished within {left_s * 1e3:.0f} ms")
        except (aiohttp.ClientError, ServerFault) as error:
            # aiohttp names its usual TLS settings, also for an address without TLS.
            told = str(error).replace(" ssl:default", "")
            return ServerFault(f"{where}: {told or type(error).__name__}")
        return self._after(text)

    def _messages(self, said: Any) -> list[Any]:
        if isinstance(said, list):
            return said
        text = said.decode() if isinstance(said, bytes) else said
        if not isinstance(text, str):
            raise TypeError(f"the prompt is {type(said).__name__}; it must be text or messages")
        user = {"role": "user", "content": text}
        return [{"role": "system", "content": self._system}, user] if self._system else [user]

    async def _completed(self, session: aiohttp.ClientSession, body: bytes) -> str:
        """Return the whole text of a completion. Leaving it closes the connection."""
        url, form = f"{self._url}/chat/completions", {"Content-Type": "application/json"}
        async with session.post(url, data=body, headers=form) as response:
            if response.status != 200:
                told = (await response.content.read(4 * SHOWN)).decode(errors="replace")
                raise ServerFault(f"answered {response.status}: {server_message(told)}")
            parts: list[str] = []
            ended = False
            async for event in events(response.content):
                text, last = _delta(event)
                parts.append(text)
                ended = ended or last
        if not ended:
            raise ServerFault(f"the stream ended early, after {sum(map(len, parts))} characters")
        return "".join(parts)


async def events(lines: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the data of server-sent events up to ``[DONE]`` or the end of the stream.

    Lines that have arrived are read without a wait, so a server that floods lines would hold up the
    other requests and their deadlines.
    """
    read = count = 0
    try:
        async for line in lines:
            count, read = count + 1, read + len(line)
            if read > 4 * MOST_BYTES:
                raise ServerFault(f"the answer has more than {4 * MOST_BYTES} bytes")
            if line.startswith(b"data:"):
                data = line[5:].strip()
                if data == b"[DONE]":
                    return
                yield data
            if count % MOST_LINES == 0:
                await asyncio.sleep(0)
    except (LineTooLong, ValueError) as error:
        raise ServerFault(f"a line of the stream has more than {MOST_BYTES} bytes") from error


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Message = msgspec.field(default_factory=_Message)
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    error: Any = None


_decoder = msgspec.json.Decoder(_Chunk)


def _delta(event: bytes) -> tuple[str, bool]:
    """Return the text in an event, and whether the completion ends with it."""
    try:
        chunk = _decoder.decode(event)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        told = server_message(event.decode(errors="replace"))
        raise ServerFault(f"sent an event that is no completion ({error}): {told}") from None
    if chunk.error is not None:
        raise ServerFault(f"broke off: {server_message(str(chunk.error))}")
    first = chunk.choices[0] if chunk.choices else _Choice()
    if first.finish_reason in BROKEN:
        raise ServerFault(f"broke off: finish_reason is {first.finish_reason!r}")
    return first.delta.content or "", first.finish_reason is not None
