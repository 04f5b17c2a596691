from control.per_query.rerouting import TokenBucket


def admitted(bucket: TokenBucket, *times: float) -> list[bool]:
    return [bucket.admit(now) for now in times]


def test_a_burst_is_admitted_and_then_the_rate() -> None:
    bucket = TokenBucket(rate=10.0, burst=2.0, now=0.0)
    assert admitted(bucket, 0.0, 0.0, 0.0, 0.05, 0.1, 0.1) == [
        True, True, False, False, True, False,
    ]  # fmt: skip


def test_the_bucket_holds_no_more_than_a_burst() -> None:
    bucket = TokenBucket(rate=10.0, burst=2.0, now=0.0)
    assert admitted(bucket, 60.0, 60.0, 60.0) == [True, True, False]


def test_a_burst_is_one_query_at_least() -> None:
    assert admitted(TokenBucket(rate=10.0, burst=0.2, now=0.0), 0.0, 0.0) == [True, False]


def test_zero_rate_admits_only_the_tokens_in_the_bucket() -> None:
    assert admitted(TokenBucket(rate=0.0, burst=1.0, now=0.0), 0.0, 100.0) == [True, False]


def test_a_bucket_begins_with_what_an_earlier_one_has_left() -> None:
    before = TokenBucket(rate=10.0, burst=2.0, now=5.0)
    assert admitted(before, 5.0, 5.0) == [True, True]
    after = TokenBucket(rate=5.0, burst=4.0, now=5.125)
    after.follow(before, 5.125)  # 0.125 s x 10
    assert admitted(after, 5.125, 5.125, 5.375) == [True, False, True]
