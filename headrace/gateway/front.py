"""The front of both protocols: the models by name, access to them, and readiness."""

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, TypeVar

from headrace.gateway.access import Tokens
from headrace.gateway.body_budget import BodyBudget
from headrace.gateway.model import Model
from headrace.gateway.protocol.statuses import Ending, Unserved
from headrace.gateway.request_counts import RequestCounts

# Never "statistics": perf_analyzer reads /stats if it is announced.
EXTENSIONS = ("binary_tensor_data", "model_configuration", "parameters")
VERSION = "1"  # of every model
T = TypeVar("T")


@dataclass(slots=True)
class Front:
    """The gateway's state. Once ``drain`` is set, it takes no new requests."""

    models: Mapping[str, Model]
    counts: RequestCounts
    tokens: Tokens
    bodies: BodyBudget
    drain: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def draining(self) -> bool:
        """Whether the gateway takes no new requests."""
        return self.drain.is_set()

    async def unless_draining(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of ``work``; None if the gateway starts to drain before there is
        one."""
        working, draining = asyncio.create_task(work), asyncio.create_task(self.drain.wait())
        either: set[asyncio.Task[Any]] = {working, draining}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            working.cancel()
            draining.cancel()

    def model(self, name: str, version: str = "") -> Model:
        """Return a model; raise ``Unserved`` for an unknown name or version."""
        found = self.models.get(name)
        if found is None:
            known = ", ".join(self.models)
            raise Unserved(Ending.UNKNOWN, f"there is no model {name[:80]!r}; known are {known}")
        if version not in ("", VERSION):
            raise Unserved(
                Ending.UNKNOWN, f"model {name} has version {VERSION} only, not {version[:80]!r}"
            )
        return found

    def check(self, authorization: str) -> None:
        """Raise ``Unserved`` for a caller without a known token."""
        if not self.tokens.admit(authorization):
            raise Unserved(
                Ending.UNAUTHENTICATED,
                "this gateway asks for a token; send the header Authorization: Bearer TOKEN",
            )

    def check_open(self) -> None:
        """Raise ``Unserved`` while the gateway drains."""
        if self.drain.is_set():
            raise Unserved(Ending.UNAVAILABLE, "this gateway is going down; ask another one")

    def live(self) -> str:
        """Return the reason to restart the process, or ""."""
        broken = [f"{m.name}: {m.broken}" for m in self.models.values() if m.broken is not None]
        return broken[0] if broken else ""

    def ready(self) -> str:
        """Return the reason that no request can be served now, or ""."""
        if self.draining:
            return "the gateway is going down"
        faults = [model.fault() for model in self.models.values()]
        return "" if "" in faults else faults[0]

    def server(self) -> dict[str, Any]:
        """Return the metadata of the server."""
        return {
            "name": "headrace", "version": version("headrace"), "extensions": list(EXTENSIONS),
        }  # fmt: skip

    def index(self, *, ready_only: bool) -> list[dict[str, str]]:
        """Return the models with their states, as Triton's repository index."""
        rows = []
        for name, model in self.models.items():
            why = model.fault()
            if not (ready_only and why):
                state = "UNAVAILABLE" if why else "READY"
                rows.append({"name": name, "version": VERSION, "state": state, "reason": why})
        return rows
