"""Find a producer whose sends stay unconfirmed although the broker delivers.

After a broker's absence a producer was observed to send nothing for minutes. Its input is not
committed, so the role ends and the slot's next reader repeats the work. Partitions whose copies are
missing are no stall (``streams/kafka/missing_copies.py``).
"""

SILENCE_S = 2.0  # a delivery after a silence this long means that the broker may be back
STALLED_S = 20.0  # the role ends if the broker delivers but confirms nothing for this long


class StalledSends:
    """Compares the time of the oldest unconfirmed send with that of the newest delivery.

    A returning broker delivers before it confirms, so the time counts from its return. Brokers may
    also be up and neither deliver nor confirm, as while too many others are lost: so the first
    silence after a send counts as an absence, too. Later ones do not, as the load may be low.
    """

    def __init__(self) -> None:
        self._delivered_s = self._back_s = 0.0

    def delivered(self, now: float, sent_s: float | None, *, away: bool) -> None:
        """Record that records were delivered; ``away``: the broker counts as away.

        ``sent_s`` is the time of the oldest unconfirmed send, if any.
        """
        first = sent_s is not None and self._back_s < sent_s < now - SILENCE_S
        if now - self._delivered_s > SILENCE_S and (away or first):
            self._back_s = now
        self._delivered_s = now

    def stalled(self, sent_s: float | None, since_s: float) -> bool:
        """Return whether sends have stalled; ``sent_s`` is the time of the oldest unconfirmed one,
        if any. The time before ``since_s`` is excused."""
        if sent_s is None:
            return False
        return self._delivered_s - max(sent_s, self._back_s, since_s) > STALLED_S
