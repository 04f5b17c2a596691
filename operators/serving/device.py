"""State machine of a worker's device: the variants it holds and the one it is loading.

Make before break: the old variant serves until the new one is loaded, and the swap happens between
two batches. The first batch of a variant evicts those before it; if none runs until the next plan,
they are unloaded then. ``TRANSITIONS`` lists every transition. A table-driven worker holds further
variants ``beside`` the serving one and loads them one at a time while it serves.
Variants are named "task/variant".
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from control.state_machine import StateMachine
from schemas.effects import Effect, Load, Unload
from schemas.variant_id import variant_id


class DeviceState(StrEnum):
    """The state of a device: which variant serves, and which is loading or waits for the swap."""

    EMPTY = "empty"
    LOADING = "loading"  # none serves, one is loading
    LOADED = "loaded"  # none serves, one waits for the swap
    SERVING = "serving"
    REPLACING = "replacing"  # one serves, another is loading
    STANDBY = "standby"  # one serves, another waits for the swap


class DeviceChange(StrEnum):
    """An event that changes a device's state."""

    LOAD = "load"  # the plan assigns a variant that is not loaded
    KEEP = "keep"  # the plan assigns the serving variant
    CLEAR = "clear"  # the plan assigns another task: evict the serving variant
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
    """A device: the ``serving`` variant, the ``loading`` one ("": none), and all ``held`` ones.

    Every held variant can run inference now.
    """

    __slots__ = (
        "_beside", "_fetching", "_leaving", "_refused", "_states", "held", "loading", "serving",
        "standby",
    )  # fmt: skip

    def __init__(self) -> None:
        self.serving = ""
        self.loading = ""
        self.held: frozenset[str] = frozenset()
        self._states = StateMachine("the device", TRANSITIONS, DeviceState.EMPTY)
        self.standby = ""  # loaded, and serves after the running batch
        self._beside: tuple[str, ...] = ()
        self._fetching = ""  # the variant being loaded to be held beside
        self._refused: frozenset[str] = frozenset()  # load failures; reset by a new ``beside``
        # In memory until the serving variant runs its first batch.
        self._leaving: frozenset[str] = frozenset()

    @property
    def state(self) -> DeviceState:
        """The device's state."""
        return self._states.state

    def want(self, variant: str, beside: Sequence[str] = (), running: str = "") -> list[Effect]:
        """Load ``variant`` ("": keep what is held) and then the variants ``beside`` it.

        Variants that only wait for their eviction are unloaded first, except that of the
        ``running`` batch: no query may come for long, and a device has no room for all variants.
        """
        cleared: frozenset[str] = frozenset()
        if variant and variant_id(self.serving).task != variant_id(variant).task:
            cleared = self._clear()
        if tuple(beside) != self._beside:
            self._beside, self._refused = tuple(beside), frozenset()
        if not variant or variant == self.loading:
            return []
        if beside and variant in self.held:
            self.serving = variant
        if variant == self.standby:
            return self.more()
        # The earlier load is superseded: its variant must not serve.
        self._leaving |= frozenset((self.standby,)) - {""}
        self.standby = ""
        if variant == self.serving and (beside or len(self.held) <= 1):
            self._states.go(DeviceChange.KEEP, variant)
            self.loading = ""
            return [*self._unload(running), *self.more()]
        self._states.go(DeviceChange.LOAD, variant)
        self.loading = variant
        unloads = self._unload(running)
        self._leaving |= cleared  # until the next plan: a batch of theirs may be about to begin
        return [*unloads, Load(variant)]

    def _unload(self, running: str) -> list[Effect]:
        """Unload the variants that wait for their eviction and that nothing uses."""
        used = self.held.union(self._beside, (self._fetching, running))
        gone, self._leaving = self._leaving - used, self._leaving & used
        return [Unload(each) for each in sorted(gone)]

    def _clear(self) -> frozenset[str]:
        """Evict every held variant, as the next task cannot use them; return them."""
        if self.serving:
            self._states.go(DeviceChange.CLEAR, self.serving)
        held, self.serving, self.held = self.held, "", frozenset()
        return held

    def ran(self, variant: str) -> None:
        """Record that a batch begins; the first one of the serving variant evicts all others."""
        if self._leaving and variant == self.serving:
            self._leaving = frozenset()

    def more(self) -> list[Effect]:
        """Load the next missing ``beside`` variant, if nothing else is loading or on standby."""
        if not self.serving or self.loading or self.standby or self._fetching:
            return []
        there = self.held | self._refused
        self._fetching = next((each for each in self._beside if each not in there), "")
        return [Load(self._fetching, beside=True)] if self._fetching else []

    def release(self) -> frozenset[str]:
        """Forget every variant; return those that are loaded."""
        loaded = self.held.union((self.standby,)) - {""}
        self._states = StateMachine("the device", TRANSITIONS, DeviceState.EMPTY)
        self.serving = self.loading = self.standby = self._fetching = ""
        self.held = self._refused = self._leaving = frozenset()
        self._beside = ()
        return loaded

    def loaded(self, variant: str) -> None:
        """Record a finished load; ignored if a later plan superseded it."""
        if variant == self.loading:
            self._states.go(DeviceChange.LOADED, variant)
            self.standby, self.loading = variant, ""
        if variant == self._fetching:
            self._fetching = ""
            if variant in self._beside:
                self.held |= {variant}

    def gave_up(self, variant: str) -> bool:
        """Record a failed load; return whether the variant is still wanted."""
        wanted = variant in (self.loading, self._fetching)
        if variant == self._fetching:
            self._fetching = ""
            self._refused |= {variant}
        if variant == self.loading:
            self._states.go(DeviceChange.FAILED, variant)
            self.loading = ""
        return wanted

    def swap(self) -> bool:
        """Swap the standby variant in, between two batches; return False if there is none."""
        if not self.standby:
            return False
        self._states.go(DeviceChange.SWAP, self.standby)
        self.serving, self.standby = self.standby, ""
        held = frozenset((self.serving,))
        self._leaving, self.held = (self._leaving | self.held) - held, held
        return True
