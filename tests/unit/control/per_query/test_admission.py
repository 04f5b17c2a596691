from control.per_query.admission import Admission


def admitted(admission: Admission, *times: float) -> list[bool]:
    return [admission.admit(now) for now in times]


def test_a_burst_is_admitted_and_then_the_rate() -> None:
    admission = Admission(rate=10.0, burst=2.0, now=0.0)
    assert admitted(admission, 0.0, 0.0, 0.0, 0.05, 0.1, 0.1) == [
        True, True, False, False, True, False,
    ]  # fmt: skip


def test_the_bucket_holds_no_more_than_a_burst() -> None:
    admission = Admission(rate=10.0, burst=2.0, now=0.0)
    assert admitted(admission, 60.0, 60.0, 60.0) == [True, True, False]


def test_a_burst_is_one_query_at_least() -> None:
    assert admitted(Admission(rate=10.0, burst=0.2, now=0.0), 0.0, 0.0) == [True, False]


def test_without_a_rate_everything_is_admitted() -> None:
    assert all(admitted(Admission(rate=None, burst=1.0, now=0.0), *[0.0] * 50))


def test_a_rate_of_nothing_admits_what_was_in_the_bucket() -> None:
    assert admitted(Admission(rate=0.0, burst=1.0, now=0.0), 0.0, 100.0) == [True, False]


def test_a_change_of_rate_keeps_what_is_in_the_bucket() -> None:
    admission = Admission(rate=10.0, burst=4.0, now=0.0)
    assert admitted(admission, 0.0, 0.0, 0.0) == [True, True, True]
    admission.change(rate=20.0, burst=8.0, now=0.1)  # 1 + 0.1 s x 10 = 2 are left
    assert admitted(admission, 0.1, 0.1, 0.1, 0.16) == [True, True, False, True]


def test_a_smaller_burst_takes_away_what_is_beyond_it() -> None:
    admission = Admission(rate=10.0, burst=4.0, now=0.0)
    admission.change(rate=10.0, burst=1.0, now=0.0)
    assert admitted(admission, 0.0, 0.0) == [True, False]


def test_a_limit_after_none_begins_with_a_full_bucket() -> None:
    admission = Admission(rate=None, burst=1.0, now=0.0)
    admission.change(rate=10.0, burst=3.0, now=5.0)
    assert admitted(admission, 5.0, 5.0, 5.0, 5.0) == [True, True, True, False]


def test_a_bucket_begins_with_what_an_earlier_one_has_left() -> None:
    before = Admission(rate=10.0, burst=2.0, now=0.0)
    assert admitted(before, 0.0, 0.0) == [True, True]
    after = Admission(rate=5.0, burst=4.0, now=0.1)
    after.follow(before, 0.1)  # 0.1 s x 10
    assert admitted(after, 0.1, 0.1, 0.35) == [True, False, True]
