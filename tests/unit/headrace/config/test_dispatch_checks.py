"""Tasks with a dispatcher in the pipeline file: refusals and their sentences."""

from pathlib import Path

import pytest

from headrace.config.pipeline_file import read_pipeline_file
from headrace.config.topology import file_roles
from headrace.errors import PipelineError
from headrace.roles.dispatching import task_dispatcher
from profiles.profile_table import ProfileTable
from tests.inner_files import TWO_TASKS, a_two_task_file


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("dispatch: kairos", "dispatch: loki", "'loki', which is no policy that dispatches"),
        ("dispatch: kairos", "dispatch: fcsf", "did you mean 'fcfs'"),
        ("children: [read]", "children: [read]\n    dispatch: fcfs", "policy: fcfs"),
        ("replicas: 3", "replicas: 3\n        batch: 4", "sends items one by one; remove it"),
        ("dispatch: kairos", "dispatch: kairos\n    selection: ramsis", "remove one of them"),
    ],
)
def test_invalid_dispatcher_is_refused(tmp_path: Path, before: str, after: str, says: str) -> None:
    assert before in TWO_TASKS
    with pytest.raises(PipelineError, match=says):
        read_pipeline_file(a_two_task_file(tmp_path, TWO_TASKS.replace(before, after, 1)))


def test_every_dispatcher_has_a_process(tmp_path: Path) -> None:
    text = TWO_TASKS.replace("cluster:\n", "cluster:\n  dispatchers: 2\n")
    file = read_pipeline_file(a_two_task_file(tmp_path, text))
    found = [role for role in file_roles(file) if role.kind == "dispatcher"]
    assert [role.name for role in found] == ["dispatcher-read-0", "dispatcher-read-1"]
    assert found[1].arguments == ("--task", "read", "--share", "1/2")


def test_a_task_without_a_dispatcher_or_a_profile_is_refused_at_the_start(tmp_path: Path) -> None:
    file = read_pipeline_file(a_two_task_file(tmp_path))
    with pytest.raises(PipelineError, match="add `dispatch: kairos` to it"):
        task_dispatcher(file, "scan", 0)
    with pytest.raises(PipelineError, match="run `headrace profile`"):
        task_dispatcher(file, "read", 0, ProfileTable("letters", (), {}))
