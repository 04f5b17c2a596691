"""Run the tutorial's own files, and its commands that need no broker."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial" / "first-pipeline.md").read_text(encoding="utf-8")
NEEDS_A_BROKER = ("up", "down", "send", "explain", "load", "policy", "status", "report")
# The page measures every batch size with 1,000 samples while all devices are busy, and simulates
# longer, which takes a minute.
QUICK = {
    "profile": ["--batches", "1,8", "--samples", "20", "--busy", "0"],
    "simulate": ["--seconds", "5"],
    "compare": ["--seconds", "5"],
}


def block(mark: str) -> str:
    found = re.search(rf"<!-- {re.escape(mark)} -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    assert found, f"the tutorial has no block behind <!-- {mark} -->"
    return found[1]


def commands() -> list[list[str]]:
    """Return the page's `headrace` commands that need no broker, in order, without comments."""
    lines = "\n".join(re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)).splitlines()
    found = [line.partition(" #")[0].split() for line in lines if line.startswith("headrace ")]
    return [words[1:] for words in found if words[1] not in NEEDS_A_BROKER]


def run(folder: Path, *command: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


@pytest.mark.models  # runs with the tests that take seconds
def test_the_tutorials_files_and_commands_work_in_their_order(tmp_path: Path) -> None:
    first, *others = commands()
    assert first == ["init", "reviews"]
    run(tmp_path, "-m", "headrace", *first)
    folder = tmp_path / "reviews"
    (folder / "reviews_boosted.py").write_text(block("file: reviews_boosted.py"), encoding="utf-8")
    run(folder, "reviews_boosted.py")
    file = folder / "pipeline.yaml"
    last = '      phrases: {operator: "reviews_operators:Phrases", batch: 16}\n'
    text = file.read_text(encoding="utf-8")
    assert last in text
    file.write_text(text.replace(last, last + block("variant")), encoding="utf-8")
    for words in others:
        if words[0] == "plan":
            text = file.read_text(encoding="utf-8").replace("policy: accurate", "policy: loki")
            file.write_text(text + "profiles: [profile-cpu.json]\n", encoding="utf-8")
        run(folder, "-m", "headrace", *words, *QUICK.get(words[0], []))
    assert [words[0] for words in others] == ["validate", "profile", "plan", "simulate", "compare"]
