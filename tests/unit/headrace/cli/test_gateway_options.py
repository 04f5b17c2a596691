"""Command-line checks of gateway limits."""

import pytest
from click.testing import CliRunner

from headrace.cli.main import headrace


def test_bodies_in_flight_have_room_for_the_largest_one() -> None:
    options = ["--most-bytes", "1000", "--most-bytes-held", "999"]
    ended = CliRunner().invoke(headrace, ["gateway", "examples/words/pipeline.yaml", *options])
    assert ended.exit_code == 2
    assert "--most-bytes-held (999) is below --most-bytes (1000); raise it" in ended.output


@pytest.mark.parametrize(
    ("given", "told"),
    [
        pytest.param(("--idle", "0s"), "--idle is 0 s, in which no", id="gRPC lets nobody in"),
        pytest.param(("--body", "0s"), "--body is 0 s, in which no", id="no message is in time"),
        pytest.param(("--idle", "400us"), "--idle is 0.0004 s", id="0 in whole milliseconds"),
    ],
)
def test_a_time_in_which_no_request_could_arrive_is_refused(
    given: tuple[str, str], told: str
) -> None:
    ended = CliRunner().invoke(headrace, ["gateway", "examples/words/pipeline.yaml", *given])
    assert ended.exit_code == 2
    assert told in ended.output
    assert "write 1ms or more" in ended.output
