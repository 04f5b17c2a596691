import pytest

from control.policies import POLICIES
from operators.dispatch.round_trip import LONGEST_S, RoundTrip


def test_the_lead_is_the_measured_round_trip_unless_the_policy_names_one() -> None:
    trip = RoundTrip(0.001)
    kairos = POLICIES["kairos"]
    assert trip.lead_s(kairos.usual) == 0.001
    for _ in range(100):
        trip.measured(0.004)
    assert trip.lead_s(kairos.usual) == pytest.approx(0.004, rel=0.01)
    assert trip.lead_s(kairos.policy("mine", {"lead": 0.0})) == 0.0


def test_a_broker_that_pauses_does_not_make_every_query_hopeless() -> None:
    trip = RoundTrip(0.001)
    for _ in range(100):
        trip.measured(5.0)
    assert trip.usual_s == LONGEST_S
    trip.forget()
    assert trip.usual_s == 0.001
