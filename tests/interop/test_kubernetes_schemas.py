"""Manifests against Kubernetes' schemas; `make interop` makes the environment that has them.

Strimzi's and Prometheus' own objects, CEL rules and admission are not checked here.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.interop.environments import python_of

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.interop, pytest.mark.slow]


def test_every_object_of_kubernetes_is_what_its_schema_says(tmp_path: Path) -> None:
    words = yaml.safe_load((ROOT / "examples/words/pipeline.yaml").read_text())
    words["cluster"] |= {"gateway": {"processes": 2}, "devices": {"cpu": 2, "cuda:0": 1}}
    (tmp_path / "words.py").write_text((ROOT / "examples/words/words.py").read_text())
    file, manifest = tmp_path / "pipeline.yaml", tmp_path / "manifest.yaml"
    file.write_text(yaml.safe_dump(words))
    command = [sys.executable, "-m", "headrace", "kubernetes", str(file), "--strimzi", "main"]
    manifest.write_bytes(subprocess.run(command, check=True, capture_output=True, cwd=ROOT).stdout)
    done = subprocess.run(
        [python_of("kubernetes"), Path(__file__).parent / "kubernetes_calls.py", manifest],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 12
