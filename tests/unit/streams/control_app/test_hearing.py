"""A consumer that stalls is noticed by what stands on the topic."""

from streams.control_app.hearing import DEAF_S, Hearing


def test_reports_that_are_written_and_not_heard_make_it_deaf() -> None:
    hearing = Hearing()
    assert not hearing.deaf(100, 0.0)
    assert not hearing.deaf(105, 1.0)
    assert not hearing.deaf(150, DEAF_S)
    assert hearing.deaf(151, DEAF_S + 0.1)


def test_one_that_hears_is_not_deaf() -> None:
    hearing = Hearing()
    for second in range(60):
        hearing.hear()
        assert not hearing.deaf(100 + second, float(second))


def test_a_topic_on_which_nothing_comes_makes_nobody_deaf() -> None:
    hearing = Hearing()
    assert not any(hearing.deaf(100, float(second)) for second in range(60))
    assert not hearing.deaf(101, 60.0)
    assert not hearing.deaf(140, 65.0)
