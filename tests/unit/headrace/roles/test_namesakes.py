"""Which reports are those of another node of the same name."""

import pytest

from headrace.roles.namesakes import is_other
from tests.control_world import an_ingress_report

REPORT = an_ingress_report(5.0, node="ingress-0")


@pytest.mark.parametrize("mine", [REPORT.incarnation - 1.0, REPORT.incarnation + 1.0])
def test_a_node_that_took_the_name_is_another_whatever_its_clock_says(mine: float) -> None:
    assert is_other(REPORT, REPORT.pipeline, ["ingress-0"], mine)


def test_own_reports_other_names_and_other_pipelines_are_passed_over() -> None:
    mine = REPORT.incarnation
    assert not is_other(REPORT, REPORT.pipeline, ["ingress-0"], mine)
    assert not is_other(REPORT, REPORT.pipeline, ["ingress-1"], mine + 1.0)
    assert not is_other(REPORT, "another", ["ingress-0"], mine + 1.0)
    assert not is_other(None, REPORT.pipeline, ["ingress-0"], mine + 1.0)
