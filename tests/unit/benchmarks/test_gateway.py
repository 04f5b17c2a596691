from itertools import islice, pairwise

from benchmarks.gateway import shuffled_rounds


def test_each_round_has_every_way_once_and_the_order_of_ways_changes() -> None:
    ways = ["kafka", "http", "grpc"]
    order = shuffled_rounds(ways)
    rounds = [tuple(islice(order, 3)) for _ in range(60)]
    assert all(sorted(each) == sorted(ways) for each in rounds)
    assert len(set(rounds)) == 6


def test_no_way_follows_another_more_often_than_chance_allows() -> None:
    order = list(islice(shuffled_rounds(["kafka", "http", "grpc", "live"]), 4_000))
    before_http = [first for first, then in pairwise(order) if then == "http"]
    # A round's last way is followed by the same way in one of four cases.
    assert 200 < before_http.count("kafka") < 400
    assert 200 < before_http.count("grpc") < 400
