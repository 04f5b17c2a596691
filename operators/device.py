"""Which variants a worker's device holds, and which one is on its way.

Make before break: the old variant serves until the new one is loaded, and the swap happens
between two batches. ``TRANSITIONS`` is the whole of it. A worker that follows tables holds other
variants ``beside`` the one that serves; they are loaded one after the other, while it serves.
Variants are named "task/variant".
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from operators.state_machine import StateMachine
from schemas.effects import Effect, Load
from schemas.variant_id import variant_id


class DeviceState(StrEnum):
    """Whether a variant serves, and whether another one is on its way or waits for the swap."""

    EMPTY = "empty"
    LOADING = "loading"  # nothing serves, one is on its way
    LOADED = "loaded"  # nothing serves, one waits for the swap
    SERVING = "serving"
    REPLACING = "replacing"  # one serves, another is on its way
    STANDBY = "standby"  # one serves, another waits for the swap


class DeviceChange(StrEnum):
    """What happens to a device."""

    LOAD = "load"  # the plan wants a variant that is not there
    KEEP = "keep"  # the plan wants the one that serves
    CLEAR = "clear"  # the plan wants another task: what serves is of no use
    LOADED = "have loaded"
    FAILED = "fail to load"
    SWAP = "swap in"


_S, _C = DeviceState, DeviceChange
TRANSITIONS: Mapping[tuple[DeviceState, DeviceChange], DeviceState] = {
    (_S.EMPTY, _C.LOAD): _S.LOADING,
    (_S.LOADING, _C.LOAD): _S.LOADING,
    (_S.LOADING, _C.LOADED): _S.LOADED,
    (_S.LOADING, _C.FAILED): _S.EMPTY,
    (_S.LOADED, _C.LOAD): _S.LOADING,
    (_S.LOADED, _C.SWAP): _S.SERVING,
    (_S.SERVING, _C.LOAD): _S.REPLACING,
    (_S.SERVING, _C.KEEP): _S.SERVING,
    (_S.SERVING, _C.CLEAR): _S.EMPTY,
    (_S.REPLACING, _C.LOAD): _S.REPLACING,
    (_S.REPLACING, _C.KEEP): _S.SERVING,
    (_S.REPLACING, _C.CLEAR): _S.LOADING,
    (_S.REPLACING, _C.LOADED): _S.STANDBY,
    (_S.REPLACING, _C.FAILED): _S.SERVING,
    (_S.STANDBY, _C.LOAD): _S.REPLACING,
    (_S.STANDBY, _C.KEEP): _S.SERVING,
    (_S.STANDBY, _C.CLEAR): _S.LOADED,
    (_S.STANDBY, _C.SWAP): _S.SERVING,
}


class Device:
    """``serving`` infers, ``loading`` is on its way; "" where there is none.

    ``held`` are all that can infer now.
    """

    __slots__ = (
        "_beside", "_fetching", "_refused", "_standby", "_states", "held", "loading", "serving",
    )  # fmt: skip

    def __init__(self) -> None:
        self.serving = ""
        self.loading = ""
        self.held: frozenset[str] = frozenset()
        self._states = StateMachine("the device", TRANSITIONS, DeviceState.EMPTY)
        self._standby = ""
        self._beside: tuple[str, ...] = ()
        self._fetching = ""  # what is to be held beside
        self._refused: frozenset[str] = frozenset()  # could not be loaded since it was wanted

    @property
    def state(self) -> DeviceState:
        """The device's state."""
        return self._states.state

    def want(self, variant: str, beside: Sequence[str] = ()) -> list[Effect]:
        """Load what the plan wants ("": none, then what is there stays), and those beside."""
        if variant and variant_id(self.serving).task != variant_id(variant).task:
            self._clear()
        if tuple(beside) != self._beside:
            self._beside, self._refused = tuple(beside), frozenset()
        if not variant or variant == self.loading:
            return []
        if beside and variant in self.held:
            self.serving = variant
        if variant == self._standby:
            return self.more()
        # What was to come until now is overtaken: it must not serve after all.
        self._standby = ""
        if variant == self.serving and (beside or len(self.held) <= 1):
            self._states.go(DeviceChange.KEEP, variant)
            self.loading = ""
            return self.more()
        self._states.go(DeviceChange.LOAD, variant)
        self.loading = variant
        return [Load(variant)]

    def _clear(self) -> None:
        """Let go of what is of no use for the task to come."""
        if self.serving:
            self._states.go(DeviceChange.CLEAR, self.serving)
        self.serving, self.held = "", frozenset()

    def more(self) -> list[Effect]:
        """The next variant that is wanted beside, where it can be its turn."""
        if not self.serving or self.loading or self._standby or self._fetching:
            return []
        there = self.held | self._refused
        self._fetching = next((each for each in self._beside if each not in there), "")
        return [Load(self._fetching, beside=True)] if self._fetching else []

    def loaded(self, variant: str) -> None:
        """A load ended; one that a later plan has overtaken is of no interest."""
        if variant == self.loading:
            self._states.go(DeviceChange.LOADED, variant)
            self._standby, self.loading = variant, ""
        if variant == self._fetching:
            self._fetching = ""
            if variant in self._beside:
                self.held |= {variant}

    def gave_up(self, variant: str) -> bool:
        """A load failed; True if it was one wanted."""
        wanted = variant in (self.loading, self._fetching)
        if variant == self._fetching:
            self._fetching = ""
            self._refused |= {variant}
        if variant == self.loading:
            self._states.go(DeviceChange.FAILED, variant)
            self.loading = ""
        return wanted

    def swap(self) -> bool:
        """Between two batches: what is on standby serves from now on; False if nothing is."""
        if not self._standby:
            return False
        self._states.go(DeviceChange.SWAP, self._standby)
        self.serving, self._standby = self._standby, ""
        self.held = frozenset((self.serving,))
        return True
