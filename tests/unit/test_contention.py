"""Workers that share cores: alone at the median, in a crowd as measured and more."""

from headrace.contention import SharedCores, measured_with
from profiles.table import ProfileTable


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_with_a_core_for_each_a_batch_takes_what_it_takes_alone() -> None:
    cores = SharedCores(2, 3, Clock())
    assert [cores.taken(1.0, 1.5), cores.taken(2.0, 3.0)] == [1.0, 2.0]


def test_as_many_as_were_busy_when_it_was_measured_take_what_was_measured() -> None:
    cores = SharedCores(2, 3, Clock())
    taken = [cores.taken(1.0, 1.5) for _ in range(4)]
    assert taken == [1.0, 1.0, 1.5, 1.5 * 4 / 3]


def test_a_batch_that_has_ended_takes_no_core() -> None:
    clock = Clock()
    cores = SharedCores(1, 2, clock)
    assert cores.taken(1.0, 2.0) == 1.0
    clock.now = 1.0
    assert cores.taken(1.0, 2.0) == 1.0


def test_the_profile_tells_how_many_were_busy() -> None:
    told = ProfileTable("p", (), {"busy_devices": {"cpu": ["cpu", "cpu"]}})
    assert measured_with(told, "cpu", 7) == 3
    assert measured_with(ProfileTable("p", ()), "cpu", 7) == 7
