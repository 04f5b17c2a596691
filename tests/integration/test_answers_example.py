"""The question-answering example runs on a real broker: retrieve, rerank, generate.

Its reranker comes from a registry; the roles know only the lock.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from headrace import Client
from schemas.records import Answer
from tests.integration.brought_up import ROOT, brought_up
from tests.unit.headrace.model_registry.registries import file_store

EXAMPLE = ROOT / "examples" / "answers"
QUESTIONS = {
    b"what is grace": "how long behind the deadline egress waits for the rest of a query",
    b"which has behidn egress waits": (
        "how long behind the deadline egress waits for the rest of a query"
    ),
    b"what is yield": "slo attainment times accuracy",
}

pytestmark = [pytest.mark.kafka, pytest.mark.models]


@pytest.fixture(scope="module")
def answers(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run the example with one worker per task and a deadline for busy machines; yield its name."""
    folder = tmp_path_factory.mktemp("answers")
    shutil.copytree(EXAMPLE, folder / "answers", ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "answers" / "pipeline.yaml"
    file = yaml.safe_load(path.read_text())
    file["slo"] = "20s"
    for policy in file["policies"].values():
        policy["replicas"]["generate/llama"] = 1
    file["cluster"]["devices"] = {"cpu": 3}
    trees = file["tasks"]["rerank"]["variants"]["trees"]
    trees["arguments"]["weights"] = "models:/reader@champion/rerank.txt"
    path.write_text(yaml.safe_dump(file))
    env = {**os.environ, "HEADRACE_HOME": str(folder), "HEADRACE_BOOTSTRAP": broker}
    registered(path, folder / "mlruns", env)
    with brought_up(path, env):
        yield "answers"


def registered(path: Path, registry: Path, env: dict[str, str]) -> None:
    """Put the reranker into a registry, resolve the reference, and delete the registry."""
    weights = path.parent / "weights"
    (weights / "rerank.txt").rename(registry.parent / "rerank.txt")
    store = file_store(registry, str(registry.parent))
    subprocess.run(
        [sys.executable, "-m", "headrace", "resolve", str(path)],
        check=True, cwd=ROOT, env={**env, "MLFLOW_TRACKING_URI": str(store)},
    )  # fmt: skip
    shutil.rmtree(store)
    (registry.parent / "rerank.txt").unlink()


def test_questions_are_answered_by_every_stage(answers: str, broker: str) -> None:
    with Client(broker, answers) as client:
        found: dict[bytes, Answer] = {q: client.ask(q, deadline=20.0) for q in QUESTIONS}
    assert {q: (a.outcome, a.result) for q, a in found.items()} == {
        q: ("answered", text) for q, text in QUESTIONS.items()
    }
    for answer in found.values():
        (path,) = answer.paths
        assert [f"{hop.task}/{hop.variant}" for hop in path] == [
            "retrieve/letters", "rerank/trees", "generate/llama",
        ]  # fmt: skip
