"""Which reports are those of another node of the same name."""

import pytest

from headrace.errors import NameTaken
from headrace.roles.namesakes import Namesakes, is_other
from schemas.codec.single_object import encode
from schemas.records import Report
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


class Late:
    """A topic whose reports arrive after this process began to listen."""

    def __init__(self, *reports: Report) -> None:
        self._values = [*map(encode, reports)]

    def take(self, _: float) -> list[bytes]:
        values, self._values = self._values, []
        return values

    def close(self) -> None:
        """Do nothing."""


def listening(*sent_s: float) -> Namesakes:
    """Return a process that began at 100 s and hears reports that were sent at these times."""
    topic = Late(*(an_ingress_report(each, node="ingress-0") for each in sent_s))
    return Namesakes(lambda: topic, "postcode", ["ingress-0"], slower=0.1, clock=lambda: 100.0)


def test_reports_that_an_ended_process_left_behind_do_not_take_its_name() -> None:
    """A quota delayed the last reports of a killed ingress; its successor was refused the name."""
    listening(99.2, 99.4, 99.6).check()


@pytest.mark.parametrize("sent_s", [(100.1,), (99.8, 100.0), (10.0, 10.2, 11.2)])
def test_a_node_whose_reports_go_on_has_the_name_whatever_its_clock_says(
    sent_s: tuple[float, ...],
) -> None:
    with pytest.raises(NameTaken):
        listening(*sent_s).check()
