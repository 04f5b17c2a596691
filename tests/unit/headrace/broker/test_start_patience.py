"""headrace/broker/start_patience.py: when a starting broker is given up."""

from headrace.broker.start_patience import MOST_S, QUIET_S, StartPatience


def test_a_broker_that_still_loads_its_partitions_is_waited_for() -> None:
    """One with 1,376 of them on a busy machine was killed after 60 s, at each start again."""
    size = 0
    patience = StartPatience(0.0, QUIET_S, lambda: size)
    for now in range(0, 180, 30):
        size += 1
        assert not patience.over(float(now))
    assert not patience.over(150.0 + QUIET_S)
    assert patience.over(151.0 + QUIET_S)


def test_a_broker_that_only_logs_errors_is_given_up_in_the_end() -> None:
    now = 0.0
    patience = StartPatience(0.0, QUIET_S, lambda: now)
    while not patience.over(now):
        now += QUIET_S / 2
    assert MOST_S < now <= MOST_S + QUIET_S / 2
