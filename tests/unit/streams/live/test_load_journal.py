"""A variant whose load ends its process is known to the next process, and set aside in the end."""

from pathlib import Path
from queue import SimpleQueue

import pytest

from schemas.effects import Event, Failed, Load, Loaded
from streams.live.executors import ModelExecutor
from streams.live.load_journal import AGAIN_S, MOST_DEATHS, LoadJournal
from tests.memory_transport import VirtualClock

DEADLY, OTHER = "read/deadly", "read/other"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def path(tmp_path: Path, clock: VirtualClock) -> Path:
    """Return the journal of a worker whose processes all died while they loaded one variant."""
    path = tmp_path / "cpu-0.loading.json"
    for _ in range(MOST_DEATHS):
        journal = LoadJournal(path, clock)
        assert not journal.set_aside(DEADLY)
        journal.began(OTHER)
        journal.began(DEADLY)
        journal.loaded(OTHER)
    return path


class Sound:
    def __init__(self, variant: str) -> None:
        self.variant = variant

    def load(self, device: str) -> None:
        """Do nothing."""

    def predict(self, batch: list[object]) -> list[object]:
        return batch


def ended(journal: LoadJournal, *loads: Load, apart: bool = False) -> list[Event]:
    """Return how these loads end in a new process of the worker."""
    posted: SimpleQueue[Event] = SimpleQueue()
    executor = ModelExecutor(
        Sound, "cpu", posted.put, lambda: 0.0, apart=lambda _: apart, load_journal=journal
    )
    found = []
    for load in loads:
        executor.load(load)
        found.append(posted.get(timeout=10))
    executor.close()
    return found


def test_a_variant_that_killed_its_processes_is_set_aside_and_others_are_loaded(
    path: Path, clock: VirtualClock
) -> None:
    """Its worker died at every start, and served nothing else."""
    failed, loaded = ended(LoadJournal(path, clock), Load(DEADLY), Load(OTHER))
    assert isinstance(failed, Failed)
    assert failed.error.startswith(f"{DEADLY} cannot be loaded: 3 processes of this worker")
    assert loaded == Loaded(OTHER, 0.0)


def test_a_reload_tries_the_variant_again_and_forgets_its_deaths(
    path: Path, clock: VirtualClock
) -> None:
    journal, fresh = LoadJournal(path, clock), Load(DEADLY, fresh=True)
    # The first load in a process is fresh whenever the variant was ever reloaded.
    failed, loaded = ended(journal, fresh, fresh)
    assert isinstance(failed, Failed)
    assert loaded == Loaded(DEADLY, 0.0)
    assert not LoadJournal(path, clock).set_aside(DEADLY)


def test_a_process_tries_the_variant_again_later(path: Path, clock: VirtualClock) -> None:
    journal = LoadJournal(path, clock)
    assert journal.set_aside(DEADLY)
    clock.now += AGAIN_S
    assert not journal.set_aside(DEADLY)


def test_a_process_that_ends_on_request_forgets_them(path: Path, clock: VirtualClock) -> None:
    journal = LoadJournal(path, clock)
    assert ended(journal, Load(OTHER)) == [Loaded(OTHER, 0.0)]
    assert not LoadJournal(path, clock).set_aside(DEADLY)


def test_a_variant_in_a_process_of_its_own_is_not_set_aside(
    path: Path, clock: VirtualClock
) -> None:
    journal = LoadJournal(path, clock)
    assert ended(journal, Load(DEADLY), apart=True) == [Loaded(DEADLY, 0.0)]
