"""A consumer that stalls is noticed by what stands on the topic."""

from streams.control_app.topic_ends import STALLED_S, ReportDelivery


def test_reports_that_are_written_and_not_delivered_mean_a_stalled_consumer() -> None:
    delivery = ReportDelivery()
    assert not delivery.stalled(100, 0.0)
    assert not delivery.stalled(105, 1.0)
    assert not delivery.stalled(150, STALLED_S)
    assert delivery.stalled(151, STALLED_S + 0.1)


def test_one_that_hears_is_not_deaf() -> None:
    delivery = ReportDelivery()
    for second in range(60):
        delivery.delivered()
        assert not delivery.stalled(100 + second, float(second))


def test_a_topic_on_which_nothing_comes_makes_nobody_deaf() -> None:
    delivery = ReportDelivery()
    assert not any(delivery.stalled(100, float(second)) for second in range(60))
    assert not delivery.stalled(101, 60.0)
    assert not delivery.stalled(140, 65.0)
