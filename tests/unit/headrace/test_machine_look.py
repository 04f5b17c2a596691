"""The look at the machine: what it sees, and what counts as a change."""

import pytest

from headrace.machine_look import MachineLook, changes, look

THEN = MachineLook(work_s=0.002, others=0.1)


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (MachineLook(0.0021, 0.2), []),
        (MachineLook(0.0025, 0.1), ["the same work takes 1.25 times the CPU time"]),
        (MachineLook(0.0015, 0.1), ["the same work takes 0.75 times the CPU time"]),
        (MachineLook(0.002, 0.5), ["other work uses 50% of the cores, and used 10%"]),
    ],
)
def test_a_slower_or_faster_processor_and_other_work_are_changes(
    now: MachineLook, told: list[str]
) -> None:
    assert list(changes(THEN, now)) == told


def test_a_look_has_the_cpu_time_of_its_work_and_a_share_of_the_cores() -> None:
    seen = look(0.0)
    assert seen.work_s > 0
    assert 0.0 <= seen.others <= 1.0
