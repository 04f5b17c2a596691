"""Tiers and links from the point of view of one session."""

from dataclasses import dataclass

QUARTERS = 4  # of a GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTier:
    """A tier: speeds relative to the reference device, $ an hour per GPU, bytes of GPU memory
    (inf: no limit). ``own``: one per session, free and never contended."""

    speed: float = 1.0
    cpu_speed: float = 1.0
    price: float = 0.0
    memory_bytes: float = float("inf")
    own: bool = False


@dataclass(frozen=True, slots=True, order=True)
class Link:
    """A link between two tiers: bytes per second and seconds of delay."""

    bytes_per_s: float
    delay_s: float
