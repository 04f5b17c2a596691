from pathlib import Path

import pytest

from control.problem.problem import PlanError
from headrace.config.pipeline_file import read_pipeline_file
from headrace.planning.mix_validation import examined_with_mix
from tests.typed_files import RANK, a_typed_file


def test_a_file_of_types_is_validated_with_the_mix_of_its_budget(tmp_path: Path) -> None:
    found = examined_with_mix(read_pipeline_file(a_typed_file(tmp_path)))
    assert found.infeasible == {}
    assert sum(count for _, count in found.file.cluster.devices) > 0


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("budget: 1.2", "budget: 0.1", "below the cheapest device, slow at 0.2"),
        ("slo: 100ms", "slo: 5ms", "no type meets the SLO of 5 ms at size 1000"),
    ],
)
def test_without_a_mix_the_policy_is_infeasible_for_that_reason(
    tmp_path: Path, old: str, new: str, why: str
) -> None:
    found = examined_with_mix(read_pipeline_file(a_typed_file(tmp_path, RANK.replace(old, new))))
    assert list(found.infeasible) == ["kairos"]
    assert why in found.infeasible["kairos"]


def test_a_type_without_a_profile_is_named(tmp_path: Path) -> None:
    file = read_pipeline_file(a_typed_file(tmp_path, RANK.replace("    slow:", "    odd:")))
    with pytest.raises(PlanError, match="no profile of rank/m on odd"):
        examined_with_mix(file)
