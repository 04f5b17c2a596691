"""Settings left by commands of an earlier run, as `up` reports them."""

from headrace.cluster.up import commanded_settings
from schemas.records import Settings

FILED = Settings(policy="loki", slo_s=0.3, filed_policy="loki", filed_slo_s=0.3)


def test_settings_equal_to_the_file_are_not_reported() -> None:
    assert commanded_settings(FILED) == []


def test_settings_left_by_commands_are_named_with_the_command_that_resets_them() -> None:
    settings = Settings(
        policy="fast", slo_s=0.2, demand_qps=50.0, drained=("cpu-1", "cpu-2"), paused=True,
        filed_policy="loki", filed_slo_s=0.3,
    )  # fmt: skip
    assert commanded_settings(settings) == [
        "policy fast (to reset: `headrace policy apply FILE loki`)",
        "an SLO of 200 ms (to reset: `headrace command FILE set-slo slo=300ms`)",
        "planned for 50/s (to reset: `headrace command FILE release-demand`)",
        "cpu-1, cpu-2 drained (to reset: `headrace restore FILE cpu-1`)",
        "paused (to reset: `headrace resume FILE`)",
    ]
