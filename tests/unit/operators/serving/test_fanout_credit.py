import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.serving.fanout import split_credit
from schemas.records import FULL_CREDIT


def test_the_first_children_get_the_rest() -> None:
    assert split_credit(10, 4) == [3, 3, 2, 2]


@given(st.lists(st.integers(1, 1000), max_size=6))
def test_six_levels_of_a_thousand_children_share_a_query_without_remainder(
    fan_outs: list[int],
) -> None:
    credit = FULL_CREDIT
    for children in fan_outs:
        shares = split_credit(credit, children)
        assert sum(shares) == credit
        assert max(shares) - min(shares) <= 1
        credit = min(shares)
    assert credit > 0


def test_more_children_than_credits_are_refused() -> None:
    with pytest.raises(ValueError, match="4 children cannot share 3 credits; fan out less"):
        split_credit(3, 4)
