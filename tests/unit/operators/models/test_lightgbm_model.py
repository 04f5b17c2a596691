"""Boosters whose files are cut short, which would end the process that reads them."""

from pathlib import Path

import pytest

from operators.models.lightgbm_model import LightGbm, is_whole
from operators.models.model_errors import BadWeights

MODEL = b"""\
tree
version=v4
tree_sizes=12 12

Tree=0
x=1

Tree=1
x=2

end of trees

feature_importances:

parameters:
[boosting: gbdt]

end of parameters

pandas_categorical:null
"""
TREES_END = MODEL.index(b"end of trees")
PARAMETERS = MODEL.index(b"parameters:") + len(b"parameters:")
PARAMETERS_END = MODEL.index(b"end of parameters") + len(b"end of parameters")


def test_a_model_without_some_of_its_trees_or_parameters_is_not_whole() -> None:
    cut = [*range(TREES_END), *range(PARAMETERS, PARAMETERS_END)]
    assert [length for length in cut if is_whole(MODEL[:length])] == []


def test_a_model_with_all_of_them_is_whole() -> None:
    assert is_whole(MODEL)
    assert is_whole(MODEL[:PARAMETERS_END])
    assert is_whole(MODEL[: TREES_END + len(b"end of trees\n")])  # as earlier releases wrote it


def test_a_file_that_is_cut_short_is_an_error_of_loading(tmp_path: Path) -> None:
    weights = tmp_path / "forest.txt"
    weights.write_bytes(MODEL[: TREES_END - 5])
    with pytest.raises(BadWeights, match="is no LightGBM model, or is cut short"):
        LightGbm(str(weights)).load("cpu")
