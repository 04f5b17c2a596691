"""Items that ran when a worker's process died are known to the next process."""

import shutil
from pathlib import Path

from streams.live.crash_journal import MOST_KEPT, CrashJournal
from tests.memory_transport import VirtualClock


def test_items_running_when_the_process_died_get_a_strike(tmp_path: Path) -> None:
    path = tmp_path / "run" / "w.json"
    first = CrashJournal(path)
    assert first.strikes == {}
    first.began(["a", "b"])
    second = CrashJournal(path)
    assert second.strikes == {"a": 1, "b": 1}
    second.began(["a"])
    assert CrashJournal(path).strikes == {"a": 2, "b": 1}
    assert CrashJournal(path).strikes == {"a": 2, "b": 1}


def test_ended_items_have_no_strike(tmp_path: Path) -> None:
    journal = CrashJournal(tmp_path / "w.json")
    journal.began(["a" * 50] * 20)
    journal.ended()
    journal.began(["b"])
    journal.ended()
    assert CrashJournal(tmp_path / "w.json").strikes == {}


def test_an_item_that_ran_for_longer_than_its_process_may_stand_still_has_a_strike(
    tmp_path: Path,
) -> None:
    clock = VirtualClock()
    journal = CrashJournal(tmp_path / "w.json", longest_s=2.5, clock=clock)
    for item, seconds, strikes in (("short", 2.5, {}), ("long", 2.6, {"long": 1}), ("next", 0, {})):
        journal.began([item])
        clock.now += seconds
        journal.ended()
        shutil.copy(tmp_path / "w.json", tmp_path / "copy.json")  # reading it counts strikes
        assert CrashJournal(tmp_path / "copy.json").strikes == strikes


def test_truncated_file_counts_as_missing(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    for text in ("", "{", "[]", '{"running": ["a"', '{"strikes": {}}'):
        path.write_text(text)
        assert CrashJournal(path).strikes == {}


def test_strikes_of_long_ago_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    CrashJournal(path).began([f"{n}" for n in range(MOST_KEPT + 5)])
    journal = CrashJournal(path)
    assert len(journal.strikes) == MOST_KEPT
    assert "0" not in journal.strikes


def test_a_large_batch_and_a_smaller_one_after_it_are_named(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    items = [f"{number}-" + "x" * 100 for number in range(MOST_KEPT)]
    journal = CrashJournal(path)
    journal.began(items)
    journal.ended()
    journal.began([*items, *items])
    journal.began(items[:2])
    assert CrashJournal(path).strikes == dict.fromkeys(items[:2], 1)


def test_a_file_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    path.write_text('{"running": ["a"], "strikes": {"b": 1}}')
    assert CrashJournal(path).strikes == {"a": 1, "b": 1}
