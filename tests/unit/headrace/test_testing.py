"""One query through operators and combine, without Kafka."""

from pathlib import Path

import pytest

from headrace import run_query
from headrace.errors import PipelineError

OPERATORS = """
class Split:
    def load(self, device): self.device = device
    def predict(self, batch): return [value.decode().split() for value in batch]

class Shout:
    def __init__(self, mark="!"): self.mark = mark
    def load(self, device): pass
    def predict(self, batch): return [value.upper() + self.mark for value in batch]

class Bare(Shout):
    def predict(self, batch): return {"answer": batch[0]}

class Picky(Shout):
    def predict(self, batch): return [1 / 0 for _ in batch]

def joined(words): return " ".join(words)
"""
FILE = """
name: talk
slo: 1s
combine: talking:joined
tasks:
  split: {variants: {v: {operator: 'talking:Split'}}, children: [shout]}
  shout:
    variants:
      loud: {operator: 'talking:Shout'}
      asking: {operator: 'talking:Shout', arguments: {mark: '?'}}
      bare: {operator: 'talking:Bare'}
      picky: {operator: 'talking:Picky'}
cluster: {devices: {cpu: 2}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "talking.py").write_text(OPERATORS)
    (tmp_path / "pipeline.yaml").write_text(FILE)
    return tmp_path / "pipeline.yaml"


def test_a_query_runs_through_every_task_and_combine(file: Path) -> None:
    found = run_query(file, b"well done")
    assert (found.outcome, found.result) == ("answered", "WELL! DONE!")
    assert run_query(file, b"well", variants={"shout": "asking"}).result == "WELL?"
    assert run_query(file, b"").result == ""


def test_an_operator_that_raises_fails_the_query_with_its_place(file: Path) -> None:
    found = run_query(file, b"well", variants={"shout": "picky"})
    assert (found.outcome, found.task) == ("failed", "shout")
    assert "shout/picky raised ZeroDivisionError: division by zero (at talking.py:" in found.reason


def test_a_mapping_in_place_of_a_list_of_outputs_fails_the_query(file: Path) -> None:
    """Its only key is no output, though there is one input."""
    found = run_query(file, b"well", variants={"shout": "bare"})
    assert (found.outcome, found.task) == ("failed", "shout")
    assert found.reason.startswith("shout/bare raised TypeError: predict returned dict; return a")


def test_unknown_variant_is_refused(file: Path) -> None:
    with pytest.raises(PipelineError, match="no variant shout/soft; name one of split/v"):
        run_query(file, b"x", variants={"shout": "soft"})


def test_an_output_that_does_not_fit_the_schema_fails_with_the_place(tmp_path: Path) -> None:
    (tmp_path / "result.avsc").write_text('"string"')
    (tmp_path / "mine_of_schema.py").write_text(
        "class Half:\n  def load(self, d): pass\n"
        "  def predict(self, b): return [len(v) for v in b]\n"
    )
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "name: half\nslo: 1s\ncluster: {devices: {cpu: 1}}\ntasks:\n  half:\n"
        "    output_schema: result.avsc\n"
        "    variants: {v: {operator: 'mine_of_schema:Half'}}\n"
    )
    answer = run_query(file, b"four")
    assert answer.outcome == "failed"
    assert answer.reason == "the output does not fit its schema: it is 4, wanted is string"
