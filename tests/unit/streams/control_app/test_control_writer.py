"""An app that was replaced unnoticed writes nothing beside its successor."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pytest

from schemas.effects import COMMAND_RESULTS, PLANS, REPORTS
from streams.control_app.control_writer import OtherWriters, Overtaken


@dataclass
class Topics:
    """Who wrote the records of the logical topics, by offset."""

    authors: dict[str, list[str]] = field(
        default_factory=lambda: {PLANS: ["a", "a"], COMMAND_RESULTS: ["a"]}
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
    for topic in (PLANS, COMMAND_RESULTS, PLANS):
        writers.check()
        writers.wrote(topic, topics.write(topic, "a"))
    writers.check()


@pytest.mark.parametrize("topic", [PLANS, COMMAND_RESULTS])
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
