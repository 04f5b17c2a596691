import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from operators.serving.device import TRANSITIONS, Device, DeviceChange, DeviceState
from schemas.effects import Effect, Load, Unload


@pytest.fixture
def serving() -> Device:
    """Return a device that serves read/a."""
    device = Device()
    device.want("read/a")
    device.loaded("read/a")
    device.swap()
    return device


def test_a_wanted_variant_serves_after_it_was_loaded_and_swapped_in() -> None:
    device = Device()
    assert device.want("read/a") == [Load("read/a")]
    assert (device.serving, device.loading) == ("", "read/a")
    device.loaded("read/a")
    assert (device.serving, device.loading) == ("", "")
    device.swap()
    assert device.serving == "read/a"


def test_the_old_variant_serves_until_the_new_one_is_swapped_in(serving: Device) -> None:
    assert serving.want("read/b") == [Load("read/b")]
    serving.swap()
    assert serving.serving == "read/a"
    serving.loaded("read/b")
    assert serving.serving == "read/a"
    serving.swap()
    assert serving.serving == "read/b"


def test_a_variant_that_is_there_or_on_its_way_is_not_loaded_again(serving: Device) -> None:
    assert serving.want("read/a") == []
    assert serving.want("read/b") == [Load("read/b")]
    assert serving.want("read/b") == []
    serving.loaded("read/b")
    assert serving.want("read/b") == []


def test_a_load_that_a_later_plan_overtook_does_not_serve(serving: Device) -> None:
    serving.want("read/b")
    assert serving.want("read/c") == [Load("read/c")]
    serving.loaded("read/b")
    serving.swap()
    assert (serving.serving, serving.loading) == ("read/a", "read/c")


def test_going_back_while_the_new_one_loads_keeps_the_old_one(serving: Device) -> None:
    serving.want("read/b")
    assert serving.want("read/a") == []
    serving.loaded("read/b")
    serving.swap()
    assert (serving.serving, serving.loading) == ("read/a", "")


def test_going_back_while_the_new_one_is_on_standby_keeps_the_old_one(serving: Device) -> None:
    serving.want("read/b")
    serving.loaded("read/b")
    assert serving.want("read/a") == [Unload("read/b")]
    serving.swap()
    assert serving.serving == "read/a"


def test_a_variant_on_standby_for_one_task_never_serves_another(serving: Device) -> None:
    serving.want("read/b")
    serving.loaded("read/b")
    assert serving.want("locate/a") == [Unload("read/b"), Load("locate/a")]
    serving.swap()
    assert (serving.serving, serving.loading) == ("", "locate/a")


def test_a_variant_of_another_task_stops_serving_at_once(serving: Device) -> None:
    assert serving.want("locate/a") == [Load("locate/a")]
    assert serving.serving == ""


def test_device_keeps_its_variant_if_no_variant_is_wanted(serving: Device) -> None:
    assert serving.want("") == []
    assert serving.serving == "read/a"


def test_a_variant_that_no_batch_evicted_is_unloaded_before_the_load_after_next(
    serving: Device,
) -> None:
    """Without queries, every variant that plans named stayed in memory."""
    serving.want("read/b")
    serving.loaded("read/b")
    serving.swap()
    assert serving.want("read/c", running="read/a") == [Load("read/c")]
    serving.loaded("read/c")
    serving.swap()
    assert serving.want("read/a") == [Unload("read/a"), Unload("read/b"), Load("read/a")]
    serving.loaded("read/a")
    serving.swap()
    serving.ran("read/a")
    assert serving.want("read/b") == [Load("read/b")]


def test_a_failed_load_is_tried_again_when_it_is_wanted_again(serving: Device) -> None:
    serving.want("read/b")
    assert serving.gave_up("read/b")
    assert (serving.serving, serving.loading) == ("read/a", "")
    assert serving.want("read/b") == [Load("read/b")]


def test_failed_load_that_no_plan_wants_is_ignored(serving: Device) -> None:
    serving.want("read/b")
    serving.want("read/c")
    assert not serving.gave_up("read/b")
    assert serving.loading == "read/c"


VARIANTS = ("read/a", "read/b", "read/c", "locate/a")


class AnyDevice(RuleBasedStateMachine):
    """The state of a device reports what it holds under any plans and loads."""

    def __init__(self) -> None:
        super().__init__()
        self.device = Device()
        self.asked: list[str] = []  # loads under way

    def note(self, effects: list[Effect]) -> None:
        self.asked += [effect.variant for effect in effects if isinstance(effect, Load)]

    @rule(variant=st.sampled_from(("", *VARIANTS)), beside=st.sets(st.sampled_from(VARIANTS[:3])))
    def want(self, variant: str, beside: set[str]) -> None:
        self.note(self.device.want(variant, sorted(beside) if variant[:5] == "read/" else ()))

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), fails=st.booleans())
    def end(self, data: st.DataObject, fails: bool) -> None:
        variant = self.asked.pop(data.draw(st.integers(0, len(self.asked) - 1)))
        if fails:
            self.device.gave_up(variant)
        else:
            self.device.loaded(variant)
        self.note(self.device.more())

    @rule()
    def swap(self) -> None:
        self.device.swap()
        self.note(self.device.more())

    @invariant()
    def its_state_says_what_it_holds(self) -> None:
        state = self.device.state
        assert bool(self.device.serving) == (state in ("serving", "replacing", "standby"))
        assert bool(self.device.loading) == (state in ("loading", "replacing"))
        assert not self.device.serving or self.device.serving in self.device.held


TestAnyDevice = AnyDevice.TestCase


def test_every_state_can_be_reached_and_left() -> None:
    assert {state for state, _ in TRANSITIONS} == set(DeviceState)
    assert {DeviceState.EMPTY, *TRANSITIONS.values()} == set(DeviceState)
    assert {change for _, change in TRANSITIONS} == set(DeviceChange)
