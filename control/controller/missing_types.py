"""Detect device types that are requested but do not arrive, so that others replace them."""

from collections.abc import Sequence

from control.policies.kairos.renting import Mix

PATIENCE_S = 120.0  # after the boot time of the type
AGAIN_S = 600.0  # until a type that was given up is requested again


class MissingTypes:
    """The types with missing devices, and the types given up with their number of devices.

    ``boot_s`` are the boot times by type, in the order of the mixes.
    """

    def __init__(self, boot_s: Sequence[float]) -> None:
        self._patience_s = [each + PATIENCE_S for each in boot_s]
        self._since: dict[int, tuple[float, int]] = {}  # missing since, devices that serve
        self._given_up: dict[int, tuple[float, int]] = {}  # until, devices that serve

    def see(self, asked: Mix, ready: Mix, now: float) -> None:
        """Record the numbers of requested and of serving devices. Each device that arrives
        restarts the wait."""
        self._given_up = {at: each for at, each in self._given_up.items() if now < each[0]}
        for at, (wanted, here) in enumerate(zip(asked, ready, strict=True)):
            since_s, before = self._since.get(at, (now, here))
            if here >= wanted:
                self._since.pop(at, None)
            elif here > before:
                self._since[at] = now, here
            elif now - since_s < self._patience_s[at]:
                self._since[at] = since_s, here
            else:
                del self._since[at]
                self._given_up[at] = now + AGAIN_S, here

    def most(self, at: int, most: int | None) -> int | None:
        """Return the limit on devices of a type; ``most`` is the limit in the pipeline file."""
        if at not in self._given_up:
            return most
        here = self._given_up[at][1]
        return here if most is None else min(here, most)
