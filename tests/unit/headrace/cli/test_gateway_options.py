"""Command-line checks of gateway limits."""

from click.testing import CliRunner

from headrace.cli.gateway import gateway


def test_bodies_in_flight_have_room_for_the_largest_one() -> None:
    options = ["--most-bytes", "1000", "--most-bytes-held", "999"]
    ended = CliRunner().invoke(gateway, ["examples/words/pipeline.yaml", *options])
    assert ended.exit_code == 2
    assert "--most-bytes-held (999) is below --most-bytes (1000); raise it" in ended.output
