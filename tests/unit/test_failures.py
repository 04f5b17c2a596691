"""`make test` does not retry a failure in which a query lacks exactly one answer."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.failures import BROKEN

ROOT = Path(__file__).parents[2]
FAILS = {
    "assert [1] == []": pytest.ExitCode.TESTS_FAILED,
    "answers.check_single()": BROKEN,
}


@pytest.mark.thorough
@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize(("statement", "code"), FAILS.items())
def test_only_a_query_without_its_one_answer_is_final(
    tmp_path: Path, statement: str, code: int, workers: str
) -> None:
    (tmp_path / "test_it.py").write_text(
        "from benchmarks.received_answers import Answers\n"
        "from tests.builders import an_answer\n\n"
        "def test_it():\n"
        "    answers, answer = Answers(), an_answer(0)\n"
        "    answers.append(answer)\n"
        "    answers.append(answer)\n"
        f"    {statement}\n"
    )
    plugins = ["-p", "tests.failures", "-p", "no:cacheprovider", "-n", workers]
    line = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        *plugins,
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    assert subprocess.run(line, cwd=ROOT, capture_output=True, check=False).returncode == code
