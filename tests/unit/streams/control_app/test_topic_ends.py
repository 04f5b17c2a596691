"""A stalled consumer and a missing ingress are detected from the end offsets of topics."""

from streams.control_app.topic_ends import (
    STALLED_S,
    UNREAD_S,
    ReportDelivery,
    UnreadPartitions,
)


def test_reports_that_are_written_and_not_delivered_mean_a_stalled_consumer() -> None:
    delivery = ReportDelivery()
    assert not delivery.stalled(100, 0.0)
    assert not delivery.stalled(105, 1.0)
    assert not delivery.stalled(150, STALLED_S)
    assert delivery.stalled(151, STALLED_S + 0.1)


def test_consumer_that_receives_reports_has_not_stalled() -> None:
    delivery = ReportDelivery()
    for second in range(60):
        delivery.delivered()
        assert not delivery.stalled(100 + second, float(second))


def test_topic_without_new_reports_means_no_stalled_consumer() -> None:
    delivery = ReportDelivery()
    assert not any(delivery.stalled(100, float(second)) for second in range(60))
    assert not delivery.stalled(101, 60.0)
    assert not delivery.stalled(140, 65.0)


def test_a_partition_that_nobody_reads_is_reported_once_for_each_time() -> None:
    unread = UnreadPartitions()
    ends, done = {0: 50, 1: 7}, {0: 40}
    assert unread.look(ends, done, 0.0) == {}
    assert unread.look({0: 90, 1: 9}, {0: 80}, UNREAD_S) == {}
    assert unread.look({0: 99, 1: 9}, {0: 95}, UNREAD_S + 0.1) == {1: 9}
    assert unread.look({0: 99, 1: 12}, {0: 99}, UNREAD_S + 5) == {}
    read = {0: 99, 1: 12}
    assert unread.look(read, read, 3 * UNREAD_S) == {}
    assert unread.look({0: 99, 1: 15}, read, 3 * UNREAD_S + 0.1) == {}
    assert unread.look({0: 99, 1: 15}, read, 4 * UNREAD_S + 0.1) == {1: 3}


def test_a_partition_without_queries_needs_no_reader() -> None:
    unread = UnreadPartitions()
    for second in range(60):
        assert unread.look({0: 5, 1: 0}, {0: 5}, float(second)) == {}
    assert unread.look({0: 6, 1: 0}, {0: 5}, 60.0) == {}  # it has just arrived
