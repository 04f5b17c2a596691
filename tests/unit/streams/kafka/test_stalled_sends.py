"""A producer that sends nothing although the broker delivers is found, and nothing else."""

import pytest

from streams.kafka.stalled_sends import SILENCE_S, STALLED_S, StalledSends

LONG_S = STALLED_S + 0.1


def deliver(sends: StalledSends, since_s: float, until_s: float, sent_s: float = 100.0) -> None:
    """Deliver a record each second between two times, and one at the second."""
    for second in range(int(until_s - since_s) + 1):
        sends.delivered(since_s + second, sent_s, away=False)
    sends.delivered(until_s, sent_s, away=False)


def test_sends_have_stalled_if_records_were_delivered_for_long_after_the_oldest_of_them() -> None:
    sends = StalledSends()
    deliver(sends, 100.0, 100.0 + STALLED_S)
    assert not sends.stalled(100.0, 0.0)
    deliver(sends, 100.0 + STALLED_S, 100.0 + LONG_S)
    assert sends.stalled(100.0, 0.0)
    assert not sends.stalled(None, 0.0)
    assert not sends.stalled(101.0, 0.0)


def test_a_broker_that_is_silent_is_waited_for() -> None:
    sends = StalledSends()
    sends.delivered(100.0, 99.0, away=False)
    assert not sends.stalled(99.0, 0.0)


def test_a_cluster_that_delivers_again_has_time_to_confirm() -> None:
    """With two of three nodes lost, the third one neither delivered nor confirmed. At the first
    record after their return every role ended."""
    sends, back_s = StalledSends(), 160.0
    deliver(sends, 90.0, 101.0)
    deliver(sends, back_s, back_s + STALLED_S)
    assert not sends.stalled(100.0, 0.0)
    deliver(sends, back_s + STALLED_S, back_s + LONG_S)
    assert sends.stalled(100.0, 0.0)


def test_sends_have_stalled_under_a_low_load_too() -> None:
    sends = StalledSends()
    for at_s in (110.0, 120.0, 130.0):
        sends.delivered(at_s, 100.0, away=False)
        assert not sends.stalled(100.0, 0.0)
    sends.delivered(140.0, 100.0, away=False)
    assert sends.stalled(100.0, 0.0)


@pytest.mark.parametrize(("silent_s", "counts"), [(SILENCE_S, True), (SILENCE_S + 0.1, False)])
def test_the_time_counts_from_the_return_of_a_broker_that_was_away(
    silent_s: float, counts: bool
) -> None:
    sends = StalledSends()
    sends.delivered(100.0, 100.0, away=False)
    sends.delivered(100.0 + silent_s, 100.0, away=True)
    for second in range(round(LONG_S)):
        sends.delivered(100.0 + silent_s + second, 100.0, away=True)
    assert sends.stalled(100.0, 0.0) is counts
    sends.delivered(100.0 + silent_s + LONG_S, 100.0, away=True)
    assert sends.stalled(100.0, 0.0)


def test_the_time_before_an_outage_ended_or_throttling_did_is_excused() -> None:
    sends = StalledSends()
    deliver(sends, 100.0, 100.0 + LONG_S)
    assert sends.stalled(100.0, 100.0)
    assert not sends.stalled(100.0, 100.2)
