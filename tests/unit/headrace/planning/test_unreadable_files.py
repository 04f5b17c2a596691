"""Files of JSON or YAML that is none get a sentence, whichever error the reader raises."""

from pathlib import Path

import pytest

from control.problem.problem import PlanError
from headrace.config.pipeline_file import read_pipeline_file, search_space
from headrace.errors import PipelineError
from headrace.model_registry.lock_file import read_lock
from headrace.planning.instance_file import read_instance
from headrace.planning.recorded_truth import read_truth
from headrace.planning.sessions_file import read_sessions

SPACE = search_space(
    read_pipeline_file(Path(__file__).parents[4] / "examples" / "postcode" / "planned.yaml")
)


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": "\xff"}', b"[" * 5_000])
def test_a_file_that_cannot_be_decoded_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(PlanError, match="file is no scheduling instance"):
        read_instance(path, "any")
    with pytest.raises(PipelineError, match="file is no recording of profiles"):
        read_truth(path, SPACE.space)
    with pytest.raises(PipelineError, match="file lists no sessions"):
        read_sessions(path, SPACE)
    with pytest.raises(PipelineError, match="file cannot be read"):
        read_lock(path)
