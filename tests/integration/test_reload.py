"""A command reloads an edited operator on a real broker, without a restart."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.rig import ROOT, Rig
from headrace.processes import environment

pytestmark = pytest.mark.kafka

OPERATOR = """
from words_of_mine import WORD

class Say:
    def load(self, device): pass
    def predict(self, batch): return [WORD for _ in batch]
"""
PIPELINE = {
    "slo": "5s",
    "egress_partitions": 1,
    "results": "json",
    "tasks": {"say": {"slots": 1, "variants": {"v": {"operator": "operators:Say"}}}},
    "cluster": {"devices": {"cpu": 1}},
}


def reload(rig: Rig, target: str = "all") -> tuple[int, str]:
    line = [sys.executable, "-m", "headrace", "reload", str(rig.file.path), target]
    line += ["--bootstrap", rig.bootstrap, "--json"]
    env = environment(os.environ, None)
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=env, cwd=ROOT)
    return done.returncode, done.stdout + done.stderr


def test_an_edited_operator_is_loaded_by_command_and_broken_code_is_not(
    broker: str, tmp_path: Path
) -> None:
    (tmp_path / "operators.py").write_text(OPERATOR)
    (tmp_path / "words_of_mine.py").write_text("WORD = 'one'\n")
    rig = Rig(broker, tmp_path, PIPELINE)

    def said() -> object:
        return rig.answer_to(rig.ask(b"?")).result

    try:
        rig.up()
        assert said() == ["one"]
        (tmp_path / "words_of_mine.py").write_text("WORD = 'two'\n")
        assert said() == ["one"]
        code, told = reload(rig)
        assert (code, json.loads(told)["workers"]) == (0, {"cpu-0": "reloaded"})
        assert said() == ["two"]
        (tmp_path / "words_of_mine.py").write_text("WORD = \n")
        code, told = reload(rig, "say/v")
        assert code == 1
        assert "invalid syntax" in json.loads(told)["workers"]["cpu-0"]
        assert said() == ["two"]
        code, told = reload(rig, "shout")
        assert code == 1
        assert "no variant or task 'shout'" in told
    finally:
        rig.close()
