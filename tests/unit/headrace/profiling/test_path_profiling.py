"""``headrace profile --paths``: whole queries along every path, judged by their answers."""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.config.profile_files import load_profile
from headrace.errors import PipelineError
from headrace.profiling.device_profiling import ProfilingOptions, profile
from headrace.profiling.path_profiling import along_paths, judge, profile_paths, right
from headrace.profiling.profile_text import paths_json, paths_text
from profiles.measure import Repeats
from profiles.measurements import PathAccuracy, ProfileError
from profiles.path_accuracy import path_gap
from schemas.pipeline import Variant

PIPELINE = """\
name: words
slo: 1s
combine: MODULE:join
tasks:
  split:
    children: [shout]
    variants:
      all: {operator: "MODULE:Split", arguments: {most: 9}, batch: 2}
      two: {operator: "MODULE:Split", arguments: {most: 2}, batch: 2}
  shout:
    variants:
      loud: {operator: "MODULE:Shout", batch: 3}
      meek: {operator: "MODULE:Meek", batch: 3}
policies:
  fixed: {replicas: {split/all: 1, shout/loud: 1}}
cluster: {devices: {cpu: 2}}
profiles: [profile-cpu.json]
workload: MODULE:Words
"""
MODULE = """\
class Split:
    def __init__(self, most): self.most = most
    def load(self, device): ...
    def predict(self, batch): return [text.split()[:self.most] for text in batch]

class Shout:
    def load(self, device): ...
    def predict(self, batch): return [word.upper() for word in batch]

class Meek:
    def load(self, device): ...
    def predict(self, batch): return [word if word == "c" else word.upper() for word in batch]

def join(outputs): return " ".join(outputs)

class Words:
    def queries(self, rng):
        while True:
            yield "a b c d", "A B C D"
            yield "", "E"
    def score(self, result, truth):
        pairs = zip(result.split(), truth.split())
        return sum(a == b for a, b in pairs), len(truth.split())
    def task_inputs(self, task, n, rng): return ["a"] * n, [0] * n
    def task_score(self, task, output, truth): return 1.0
"""
QUICK = ProfilingOptions(
    repeats=Repeats(least=3, most=5, budget_s=0.0), samples=2, busy=0, batches=(1,)
)


@pytest.fixture(autouse=True)
def _same_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def words(folder: Path, module: str) -> PipelineFile:
    """Return the pipeline with its operators in a module that no other test imports."""
    (folder / f"{module}.py").write_text(MODULE)
    path = folder / "pipeline.yaml"
    path.write_text(PIPELINE.replace("MODULE", module))
    return read_pipeline_file(path)


PROFILED = "words_profiled"  # the module


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the profile of the pipeline's variants, as JSON: its four processes take seconds."""
    folder = tmp_path_factory.mktemp("profiled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        profile(words(folder, PROFILED), ["cpu"], folder / "profile-cpu.json", QUICK)
    return (folder / "profile-cpu.json").read_text()


def profiled_words(folder: Path, module: str, profiled: str) -> tuple[PipelineFile, Path]:
    """Return the pipeline with a module of its own, and the path of its profile."""
    file, out = words(folder, module), folder / "profile-cpu.json"
    out.write_text(profiled.replace(PROFILED, module))
    return file, out


@pytest.mark.thorough
def test_whole_queries_are_run_along_every_path_and_added_to_the_profile(
    tmp_path: Path, profiled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = profiled_words(tmp_path, "words_paths", profiled)
    before, was = load_profile(file), json.loads(out.read_text())
    table = profile_paths(file, [], out, QUICK)
    assert table.paths == (
        PathAccuracy(("split/all", "shout/loud"), 0.8, 2),  # 4 of 4 and 0 of 1
        PathAccuracy(("split/two", "shout/loud"), 0.4, 2),
        PathAccuracy(("split/all", "shout/meek"), 0.6, 2),
        PathAccuracy(("split/two", "shout/meek"), 0.4, 2),
    )
    assert (load_profile(file), table.entries) == (table, before.entries)
    now = json.loads(out.read_text())
    assert now["entries"] == was["entries"]
    origin = now["provenance"].pop("paths")
    assert now["provenance"] == was["provenance"]
    assert (origin["queries"], origin["seed"], origin["device"]) == (2, 0, "cpu")
    assert set(origin["weights"]) == {"split/all", "split/two", "shout/loud", "shout/meek"}
    lines = capsys.readouterr().err.splitlines()
    assert [re.sub(r"profiling: |, about \d+ s left", "", line) for line in lines] == [
        "0 of 6, split/all, 2 items",
        "1 of 6, split/two, 2 items",
        "2 of 6, shout/loud, 4 items",
        "3 of 6, shout/loud, 2 items",
        "4 of 6, shout/meek, 4 items",
        "5 of 6, shout/meek, 2 items",
        "6 of 6, done",
    ]


@pytest.mark.thorough
def test_paths_are_not_added_to_a_profile_that_lacks_a_variant(
    tmp_path: Path, profiled: str
) -> None:
    file, out = profiled_words(tmp_path, "words_unprofiled", profiled)
    document = json.loads(out.read_text())
    out.unlink()
    with pytest.raises(
        PipelineError, match=r"is not there; run `headrace profile pipeline.yaml` f"
    ):
        profile_paths(file, [], out, QUICK)
    out.write_text(json.dumps({**document, "entries": document["entries"][:3]}))
    with pytest.raises(PipelineError, match="has no profile of shout/meek; run `headrace profile"):
        profile_paths(file, [], out, QUICK)
    document["entries"][0]["operator"] = "elsewhere:Split"
    out.write_text(json.dumps(document))
    with pytest.raises(PipelineError, match="measured with the operator elsewhere:Split"):
        profile_paths(file, [], out, QUICK)


TREE = """\
name: photos
slo: 1s
tasks:
  find:
    children: [cars, people]
    variants: {v: {operator: "m:C"}}
  cars: {variants: {v: {operator: "m:C"}, w: {operator: "m:C"}}}
  people: {variants: {v: {operator: "m:C"}}}
cluster: {devices: {cpu: 3}}
workload: MODULE:Photos
"""
PHOTOS = """\
class Photos:
    def queries(self, rng): yield b"", None
    def score(self, result, truth): return 1, 1
    def task_inputs(self, task, n, rng): return [], []
    def task_score(self, task, output, truth): return 1.0
"""


def photos(folder: Path, module: str, more: str = "") -> PipelineFile:
    (folder / f"{module}.py").write_text(PHOTOS + more)
    (folder / "pipeline.yaml").write_text(TREE.replace("MODULE", module))
    return read_pipeline_file(folder / "pipeline.yaml")


def test_every_leaf_task_has_its_paths(tmp_path: Path) -> None:
    pipeline = photos(tmp_path, "photos_paths").pipeline

    def run(variant: Variant, inputs: Sequence[Any]) -> list[Any]:
        if variant.task == "find":
            return [{"cars": [1] * n, "people": [2]} for n in inputs]
        return [f"{variant.name}{each}" for each in inputs]

    assert along_paths(pipeline, [2, 0], run) == {
        ("find/v", "cars/v"): [["v1", "v1"], []],
        ("find/v", "cars/w"): [["w1", "w1"], []],
        ("find/v", "people/v"): [["v2"], ["v2"]],
    }


def test_workload_that_judges_whole_answers_gives_no_accuracy_of_a_single_leaf_task(
    tmp_path: Path,
) -> None:
    with pytest.raises(PipelineError, match="to cars, people; give it a method leaf_score"):
        judge(photos(tmp_path, "photos_whole"))
    score = "    def leaf_score(self, task, outputs, truth): return len(outputs), 3\n"
    assert judge(photos(tmp_path, "photos_leaf", score))("cars", ["a"], None) == (1, 3)


def test_parts_right_are_counted_over_all_queries() -> None:
    assert right([["a"], []], [1, 3], lambda outputs, truth: (len(outputs), truth)) == 0.25
    with pytest.raises(ProfileError, match="counted no part"):
        right([[]], [0], lambda outputs, truth: (0, 0))


@pytest.mark.thorough
def test_difference_from_the_products_is_reported(tmp_path: Path, profiled: str) -> None:
    file, out = profiled_words(tmp_path, "words_told", profiled)
    assert path_gap(load_profile(file)) is None
    table = profile_paths(file, [], out, QUICK)
    gap = path_gap(table)
    assert gap is not None
    assert (gap.paths, gap.largest, gap.where) == (4, -0.6, ("split/two", "shout/loud"))
    assert gap.mean == pytest.approx(0.45)
    assert paths_text(table).splitlines()[0] == (
        "split/all > shout/loud: accuracy 0.800, product 1.000 (-20.0 points)"
    )
    assert paths_text(table).splitlines()[-1] == (
        "4 measured paths differ from the products of their variants' accuracies by 45.0 points "
        "on average, at most -60.0 (split/two > shout/loud)"
    )
    assert paths_json(table, out)["paths"][0] == {
        "path": ["split/all", "shout/loud"], "accuracy": 0.8, "product": 1.0, "queries": 2,
    }  # fmt: skip


LARGE = """
import gc, weakref
gc.disable()
held = []

def hold(operator):
    assert not any(each() for each in held), "out of memory"
    held.append(weakref.ref(operator))
    operator.itself = operator  # garbage in a cycle
"""


@pytest.mark.thorough
def test_a_device_holds_one_model_at_a_time(tmp_path: Path, profiled: str) -> None:
    file, out = profiled_words(tmp_path, "path_words_large", profiled)
    loads = MODULE.replace("def load(self, device): ...", "def load(self, device): hold(self)")
    (tmp_path / "path_words_large.py").write_text(LARGE + loads)
    assert len(profile_paths(file, ["cpu"], out, QUICK).paths) == 4


@pytest.mark.thorough
def test_a_workload_without_queries_is_one_sentence(tmp_path: Path, profiled: str) -> None:
    file, out = profiled_words(tmp_path, "path_words_empty", profiled)
    empty = MODULE.replace("while True:", "for _ in ():")
    (tmp_path / "path_words_empty.py").write_text(empty)
    with pytest.raises(PipelineError, match="profiling paths: the workload's method queries yield"):
        profile_paths(file, ["cpu"], out, QUICK)
