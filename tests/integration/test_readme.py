"""Run the code of the README: its pipeline, and its consumer in plain Python."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.brought_up import brought_up

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(mark: str) -> dict[str, str]:
    """Return the code blocks after a comment ``<!-- mark: name -->``, by name."""
    found = re.findall(rf"<!-- {mark}: (\S+) -->\n```\w+\n(.*?)```", README, re.DOTALL)
    return dict(found)


def test_the_readme_shows_the_example_files_as_they_are() -> None:
    shown = blocks("file")
    assert set(shown) == {"examples/words/words.py", "examples/words/pipeline.yaml"}
    for name, text in shown.items():
        assert (ROOT / name).read_text(encoding="utf-8") == text, name


@pytest.mark.kafka
def test_the_readmes_consumer_gets_its_answer(broker: str, tmp_path: Path) -> None:
    file = ROOT / "examples" / "words" / "pipeline.yaml"
    env = {**os.environ, "HEADRACE_HOME": str(tmp_path), "HEADRACE_BOOTSTRAP": broker}
    with brought_up(file, env) as up:
        script = subprocess.run(
            [sys.executable, "-c", blocks("run")["words"]],
            env={**env, "BOOTSTRAP": broker}, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
        assert (script.stdout, script.stderr) == ("answered ['HELLO', 'WORLD']\n", "")
    assert up.returncode == 0
