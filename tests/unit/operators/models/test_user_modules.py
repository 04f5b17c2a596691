"""User modules beside the pipeline file with names of Headrace's packages."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import operators.egress.egress
import schemas.pipeline
from headrace.config.pipeline_file import read_pipeline_file
from headrace.config.user_functions import load_combine
from operators.models.loading import load_operator
from operators.models.module_references import resolve
from operators.models.user_modules import forget_code, make_known
from schemas.pipeline import Variant

NAMES = ("operators", "control", "schemas", "streams", "profiles", "headrace")
OPERATOR = """
import schemas
from control import factor
from operators.models.model_errors import ModelError as ours

class Twice:
    def __init__(self, model=""):
        self.model = model
    def load(self, device): pass
    def predict(self, batch):
        return [factor() * schemas.ONE * value for value in batch]
def balance(values): return sum(values)
"""
FILE = """
name: mine
slo: 1s
combine: operators:balance
tasks:
  twice:
    variants:
      a: {operator: operators:Twice, paths: {model: models/x.bin}}
      b: {operator: 'operators.models.python:Python', arguments: {function: 'streams:Stream'}}
cluster: {devices: {cpu: 1}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    texts = dict.fromkeys(NAMES, "class Stream:\n    def __call__(self, value): return value\n")
    texts |= {
        "operators": OPERATOR,
        "schemas": "ONE = 1\n",
        "control": "import profiles\ndef factor(): return profiles.FACTOR\n",
        "profiles": "FACTOR = 2\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "pipeline.yaml").write_text(FILE)
    return tmp_path


def test_modules_beside_the_file_come_before_headraces_of_the_same_name(folder: Path) -> None:
    file = read_pipeline_file(folder / "pipeline.yaml")
    own, shipped = file.pipeline.tasks[0].variants
    operator = load_operator(own)
    assert operator.predict([1, 2]) == [2, 4]  # type: ignore[attr-defined]
    assert operator.model == str(folder / "models/x.bin")  # type: ignore[attr-defined]
    combine = load_combine(file.pipeline)
    assert combine is not None
    assert combine([1, 2], ["twice", "twice"]) == 3
    adapter = load_operator(shipped)
    adapter.load("cpu")  # type: ignore[attr-defined]
    assert adapter.predict([7]) == [7]  # type: ignore[attr-defined]


def test_headraces_own_packages_stay_what_they_are(folder: Path) -> None:
    read_pipeline_file(folder / "pipeline.yaml")
    assert hasattr(operators, "__path__")
    assert resolve("operators.models.python:Python").__module__ == "operators.models.python"
    assert resolve("schemas.pipeline:Pipeline") is schemas.pipeline.Pipeline


def test_a_package_of_the_users_imports_its_own_parts(tmp_path: Path) -> None:
    package = tmp_path / "streams"
    package.mkdir()
    (package / "__init__.py").write_text("from streams.inner import ONE\nfrom . import inner\n")
    (package / "inner.py").write_text("ONE = 1\ndef get(): return ONE\n")
    (tmp_path / "profiles").mkdir()  # a data folder is not a module
    (tmp_path / "pipeline.yaml").write_text(FILE.replace("combine: operators:balance\n", ""))
    read_pipeline_file(tmp_path / "pipeline.yaml")
    assert resolve("streams.inner:get")() == 1
    assert resolve("streams:ONE") == 1
    assert resolve("profiles.profile_table:ProfileTable").__module__ == "profiles.profile_table"


@pytest.mark.parametrize("module", ["operators", "mine"])
def test_forgotten_code_is_read_anew_even_within_the_same_second(
    tmp_path: Path, module: str
) -> None:
    def predicts() -> object:
        variant = Variant(task="t", name="v", operator=f"{module}:Op")
        return load_operator(variant).predict([0])[0]  # type: ignore[attr-defined]

    text = (
        "import {0}\nclass Op:\n  def load(self, d): pass\n  def predict(self, b): return [{0}.N]\n"
    )
    helper = f"helper_of_{module}"
    (tmp_path / f"{module}.py").write_text(text.format(helper))
    (tmp_path / f"{helper}.py").write_text("N = 1\n")
    make_known(tmp_path)
    before = {name: sys.modules[name] for name in ("numpy", "operators.egress.egress")}
    assert predicts() == 1
    (tmp_path / f"{helper}.py").write_text("N = 2\n")
    assert predicts() == 1
    forget_code()
    assert predicts() == 2
    assert {name: sys.modules[name] for name in before} == before
