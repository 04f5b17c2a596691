"""Devices of a session-owned tier: the assignment to sessions."""

from dataclasses import replace

from control.problem.seats import Seat, bound_device
from control.problem.tiers import QUARTERS
from control.sessions.devices import Devices, session_plan
from schemas.records import SessionChoice
from tests.session_world import TASKS, a_space


def seats(*devices: str) -> tuple[Seat, ...]:
    return tuple(
        Seat(worker=f"{each}-{task}", task=task, tier="handheld", device=each, slot=slot)
        for slot, each in enumerate(devices)
        for task in TASKS
    )


CHOICE = SessionChoice(
    settings={}, tiers=dict.fromkeys(TASKS, "handheld"), quarters=dict.fromkeys(TASKS, 0)
)


def device_of(session: str, *devices: str) -> str | None:
    placed = Devices(seats(*devices), a_space()).place(session, CHOICE, TASKS)
    return None if placed is None else placed["scan"].device


BOUND = bound_device("handheld", "cam-17")


def test_a_session_has_the_device_that_is_bound_to_it() -> None:
    assert device_of("cam-17", "handheld-0", BOUND) == BOUND


def test_a_bound_device_serves_no_other_session() -> None:
    assert device_of("cam-1", BOUND, "handheld-0") == "handheld-0"
    assert device_of("cam-1", BOUND) is None


def test_without_a_device_of_its_own_a_session_takes_a_free_one() -> None:
    assert device_of("cam-17", "handheld-0") == "handheld-0"


def test_bound_devices_are_not_free_for_all() -> None:
    devices = Devices(seats("handheld-0", BOUND), a_space())
    assert devices.free == {("handheld", ""): (QUARTERS,)}
    assert devices.bound == {BOUND}


def test_device_of_a_draining_plan_is_free_only_for_the_next_plan_of_its_session() -> None:
    cloud = tuple(replace(seat, tier="cloud") for seat in seats("cloud-0"))
    choice = SessionChoice(
        settings=dict.fromkeys(TASKS, "v"), tiers=dict.fromkeys(TASKS, "cloud"),
        quarters=dict.fromkeys(TASKS, 2),
    )  # fmt: skip
    devices = Devices(cloud, a_space())
    placed = devices.place("cam-1", choice, TASKS)
    assert placed is not None
    devices.take(session_plan("cam-1", 1, 1.0, choice, placed), drains=True)
    assert devices.place("cam-2", choice, TASKS) is None
    assert devices.place("cam-1", choice, TASKS) == placed
    devices.take(session_plan("cam-1", 2, 1.0, choice, placed))
    assert devices.place("cam-1", choice, TASKS) is None
    assert devices.place("cam-2", choice, TASKS) is None
