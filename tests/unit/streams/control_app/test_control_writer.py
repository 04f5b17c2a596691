"""An app that was replaced without noticing writes nothing beside its successor."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pytest

from schemas.effects import COMMAND_RESULTS, PLANS, REPORTS, SESSIONS, Forget, Send
from schemas.enumerations import SessionState
from schemas.records import Session
from streams.control_app.control_writer import ControlWriter, OtherWriters, Overtaken
from tests.session_world import a_session_pipeline


@dataclass
class Topics:
    """The writers of records on the logical topics, by offset."""

    authors: dict[str, list[str]] = field(
        default_factory=lambda: {PLANS: ["a", "a"], COMMAND_RESULTS: ["a"], SESSIONS: ["a"]}
    )

    def write(self, topic: str, author: str) -> int:
        self.authors[topic].append(author)
        return len(self.authors[topic]) - 1

    def ends(self) -> dict[str, int]:
        return {**{topic: len(records) for topic, records in self.authors.items()}, REPORTS: 7}

    def written_by_others(
        self, since: Mapping[str, int], own: Collection[tuple[str, int]]
    ) -> tuple[Mapping[str, int], bool]:
        ends = {topic: len(self.authors[topic]) for topic in since}
        new = {(topic, at) for topic in since for at in range(since[topic], ends[topic])}
        return ends, bool(new - set(own))


def test_an_app_that_writes_alone_is_never_overtaken() -> None:
    topics = Topics()
    writers = OtherWriters(topics)
    writers.begin(topics.ends())
    for topic in (PLANS, COMMAND_RESULTS, SESSIONS, PLANS):
        writers.check()
        writers.wrote(topic, topics.write(topic, "a"))
    writers.check()


@pytest.mark.parametrize("topic", [PLANS, COMMAND_RESULTS, SESSIONS])
def test_a_record_of_another_app_is_seen_before_the_next_write(topic: str) -> None:
    topics = Topics()
    writers = OtherWriters(topics)
    writers.begin(topics.ends())
    writers.wrote(PLANS, topics.write(PLANS, "a"))
    topics.write(topic, "b")
    with pytest.raises(Overtaken):
        writers.check()


def test_what_was_read_back_is_known() -> None:
    topics = Topics()
    writers = OtherWriters(topics)
    writers.begin(topics.ends())
    topics.write(PLANS, "b")
    writers.begin(topics.ends())
    writers.check()


SESSION = Session(id="cam", pipeline="p", state=SessionState.SERVING, slo_s=1.0)


@pytest.mark.parametrize("effect", [Send(SESSIONS, SESSION, 0, "cam"), Forget(SESSIONS, "cam")])
def test_an_app_whose_successor_closed_a_session_neither_revives_nor_deletes_its_record(
    effect: Send | Forget,
) -> None:
    topics, written = Topics(), list[bytes | None]()

    async def write(topic: str, value: bytes | None, slot: int | None, key: bytes | None) -> int:
        written.append(value)
        return topics.write(SESSIONS, "a")

    writer = ControlWriter(a_session_pipeline(), topics, None)
    writer.write = write
    writer.begin(topics.ends())
    act = writer.send(effect) if isinstance(effect, Send) else writer.forget(effect)
    asyncio.run(act)
    assert len(written) == 1
    topics.write(SESSIONS, "b")
    act = writer.send(effect) if isinstance(effect, Send) else writer.forget(effect)
    with pytest.raises(Overtaken):
        asyncio.run(act)
    assert len(written) == 1
