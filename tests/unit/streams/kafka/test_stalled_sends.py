"""A producer that sends nothing although the broker delivers is found, and nothing else."""

import pytest

from streams.kafka.admin.topic_admin import InSync
from streams.kafka.stalled_sends import SILENCE_S, STALLED_S, StalledSends, stall_sentence

LONG_S = STALLED_S + 0.1


def test_sends_have_stalled_if_records_were_delivered_for_long_after_the_oldest_of_them() -> None:
    sends = StalledSends()
    sends.delivered(100.0, away=False)
    sends.delivered(100.0 + STALLED_S, away=False)
    assert not sends.stalled(100.0, 0.0)
    sends.delivered(100.0 + LONG_S, away=False)
    assert sends.stalled(100.0, 0.0)
    assert not sends.stalled(None, 0.0)
    assert not sends.stalled(101.0, 0.0)


def test_a_broker_that_is_silent_is_waited_for() -> None:
    sends = StalledSends()
    sends.delivered(100.0, away=False)
    assert not sends.stalled(99.0, 0.0)


@pytest.mark.parametrize(("silent_s", "counts"), [(SILENCE_S, True), (SILENCE_S + 0.1, False)])
def test_the_time_counts_from_the_return_of_a_broker_that_was_away(
    silent_s: float, counts: bool
) -> None:
    sends = StalledSends()
    sends.delivered(100.0, away=False)
    sends.delivered(100.0 + silent_s, away=True)
    for second in range(round(LONG_S)):
        sends.delivered(100.0 + silent_s + second, away=True)
    assert sends.stalled(100.0, 0.0) is counts
    sends.delivered(100.0 + silent_s + LONG_S, away=True)
    assert sends.stalled(100.0, 0.0)


def test_the_time_before_an_outage_ended_or_throttling_did_is_excused() -> None:
    sends = StalledSends()
    sends.delivered(100.0 + LONG_S, away=False)
    assert sends.stalled(100.0, 100.0)
    assert not sends.stalled(100.0, 100.2)


def test_a_topic_with_too_few_copies_in_sync_is_named() -> None:
    """The role said to start it anew, which did not help."""
    assert stall_sentence([InSync("p.results", 0, 3, 3)]).endswith("20 s; start this role anew")
    found = [InSync("p.results", 0, 3, 3), InSync("p.results", 1, 2, 3), InSync("p.work", 0, 1, 3)]
    assert stall_sentence(found).endswith(
        "20 s: of the 3 copies of p.results-1 2 are in sync; bring the brokers of the others back, "
        "or lower min.insync.replicas of p.results, p.work"
    )
