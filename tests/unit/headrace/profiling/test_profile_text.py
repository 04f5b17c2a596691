"""The final text of `headrace profile`."""

from pathlib import Path

from headrace.config.pipeline_file import read_pipeline_file
from headrace.profiling.profile_text import written_text

ROOT = Path(__file__).parents[4]


def test_a_profile_that_the_file_does_not_name_comes_with_the_line_to_add() -> None:
    file = read_pipeline_file(ROOT / "examples" / "postcode" / "pipeline.yaml")
    (named,) = file.profiles
    assert written_text(file, named) == f"written to {named} (referenced by pipeline.yaml)"
    other = file.path.parent / "profiles" / "gpu.json"
    assert written_text(file, other) == (
        f"written to {other}; to use it for plans, add to pipeline.yaml:  "
        "profiles: [profiles/gpu.json]"
    )
