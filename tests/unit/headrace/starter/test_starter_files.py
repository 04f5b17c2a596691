"""``headrace init``: a valid pipeline, written without overwriting files."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.files import init
from headrace.cli.main import run
from headrace.config.pipeline_file import read_pipeline_file
from headrace.config.user_functions import load_workload
from headrace.errors import PipelineError
from headrace.starter.starter_files import Names, starter_files, starter_names, write_starter
from operators.models.loading import load_operator


@pytest.fixture
def no_traces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Modules that a test imports from its starter are removed after it."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("folder", "name", "names"),
    [
        ("reviews", "", Names("reviews", "reviews")),
        ("My Reviews_2", "", Names("my-reviews-2", "my_reviews_2")),
        ("2024", "", Names("2024", "p2024")),
        ("x", "other-name", Names("other-name", "other_name")),
    ],
)
def test_names_come_from_the_folder_unless_one_is_given(
    folder: str, name: str, names: Names
) -> None:
    assert starter_names(folder, name) == names


@pytest.mark.parametrize(("folder", "name"), [("___", ""), ("x", "Upper"), ("x", "--")])
def test_a_name_that_cannot_be_one_is_refused_with_a_remedy(folder: str, name: str) -> None:
    with pytest.raises(PipelineError, match="give one with --name"):
        starter_names(folder, name)


@given(st.text(max_size=30))
def test_whatever_the_folder_is_called_its_modules_can_be_imported(folder: str) -> None:
    try:
        names = starter_names(folder, "")
    except PipelineError:
        return
    assert f"{names.module}_operators".isidentifier()
    for name, text in starter_files(names).items():
        if name.endswith(".py"):
            compile(text, name, "exec")


@pytest.mark.usefixtures("no_traces")
def test_the_starter_is_valid_and_its_accurate_variant_is_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rng: np.random.Generator
) -> None:
    folder = tmp_path / "taste-test"
    assert run(["init", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    names = ("pipeline.yaml", "taste_test_operators.py", "taste_test_workload.py", "README.md")
    assert told == {"pipeline": "taste-test", "files": [str(folder / name) for name in names]}
    assert run(["validate", str(folder / "pipeline.yaml")]) == 0

    file = read_pipeline_file(folder / "pipeline.yaml")
    workload = load_workload(file)
    right = {}
    for variant in (v for task in file.pipeline.tasks for v in task.variants):
        inputs, truths = workload.task_inputs(variant.task, 200, rng)
        outputs = load_operator(variant).predict(inputs)
        scores = [
            workload.task_score(variant.task, *pair) for pair in zip(outputs, truths, strict=True)
        ]
        right[variant.key] = sum(scores) / len(scores)
    assert (right["split/sentences"], right["judge/phrases"]) == (1.0, 1.0)
    assert right["judge/words"] < 0.9


@pytest.mark.usefixtures("no_traces")
def test_a_query_of_the_workload_is_split_into_sentences_and_balanced(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    write_starter(tmp_path, starter_files(Names("bal", "bal")))
    workload = load_workload(read_pipeline_file(tmp_path / "pipeline.yaml"))
    import bal_operators as operators

    queries = workload.queries(rng)
    for payload, truth in (next(queries) for _ in range(50)):
        (sentences,) = operators.Sentences().predict([payload])
        result = operators.balance(operators.Phrases().predict(sentences))
        assert workload.score(result, truth) == (1, 1)


def test_nothing_is_overwritten_and_nothing_is_half_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "README.md"
    mine.write_text("mine")
    assert run(["init", str(tmp_path), "--name", "x"]) == 2
    captured = capsys.readouterr()
    sentence = f"headrace: {mine} is there already; name another folder or move it away\n"
    assert (captured.out, captured.err) == ("", sentence)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    assert mine.read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(PipelineError, match="cannot be written"):
        write_starter(blocked / "below", {"pipeline.yaml": ""})


def test_the_next_command_can_be_pasted_for_a_folder_with_a_blank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(init, ["My Reviews"])
    assert ended.output.splitlines()[-1] == "next: headrace up 'My Reviews/pipeline.yaml'"
