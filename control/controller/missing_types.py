"""Notice a type of devices that is asked for and does not come, so that others take its place."""

from collections.abc import Sequence

from control.policies.kairos.renting import Mix

PATIENCE_S = 120.0  # behind the boot time of the type
AGAIN_S = 600.0  # after which a type that was given up is asked for again


class MissingTypes:
    """By type, since when devices are missing, and the number at which the type was given up.

    ``boot_s`` are by type, in the order of the mixes.
    """

    def __init__(self, boot_s: Sequence[float]) -> None:
        self._patience_s = [each + PATIENCE_S for each in boot_s]
        self._since: dict[int, tuple[float, int]] = {}  # missing since, devices that serve
        self._given_up: dict[int, tuple[float, int]] = {}  # until, devices that serve

    def see(self, asked: Mix, ready: Mix, now: float) -> None:
        """Take the numbers of devices asked for and of those that serve. Time is counted anew with
        each device that comes."""
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
        """Return how many devices of a type may be wanted, of ``most`` that its file allows."""
        if at not in self._given_up:
            return most
        here = self._given_up[at][1]
        return here if most is None else min(here, most)
