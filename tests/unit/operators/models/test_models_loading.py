"""Operators loaded by name, and the sentence for each failure."""

import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from operators.models.libraries import library
from operators.models.loading import load_operator, preload
from operators.models.model_errors import BadArguments, BadOperator, BadReference, MissingExtra
from operators.models.module_references import resolve
from schemas.pipeline import Variant

CODE = """
class Doubler:
    def __init__(self, factor, offset=0):
        self.factor = factor

    def load(self, device):
        pass

    def predict(self, batch):
        return [self.factor * value for value in batch]


class Silent:
    def load(self, device):
        pass


class Empty:
    pass


class Tripler:
    def predict(self, batch):
        return [3 * value for value in batch]

    def warm_up(self):
        return [1]


def shout(batch, mark=""):
    return [value.upper() + mark for value in batch]


def nothing():
    return []
"""


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a user's package ``zoo`` beside a pipeline file."""
    folder = tmp_path / "zoo"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "animals.py").write_text(CODE)
    (folder / "hungry.py").write_text("import onnxruntime")
    (folder / "lost.py").write_text("import no_such_library")
    (folder / "wrong.py").write_text("def f(:\n")
    (folder / "leaves.py").write_text("import sys\nsys.exit('no licence')\n")
    (folder / "picky.py").write_text(
        "class Picky:\n    def __init__(self):\n        raise ValueError('no table')\n"
        "    def load(self, device): pass\n    def predict(self, batch): return batch\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [n for n in sys.modules if n.partition(".")[0] == "zoo"]:
        monkeypatch.delitem(sys.modules, name)


def a_variant(operator: str, **arguments: Any) -> Variant:
    return Variant(task="read", name="v", operator=operator, arguments=arguments)


def test_an_operator_is_made_with_its_arguments() -> None:
    operator: Any = load_operator(a_variant("zoo.animals:Doubler", factor=3))
    assert operator.predict([1, 2]) == [3, 6]


def test_an_operator_that_loads_nothing_needs_no_load() -> None:
    operator: Any = load_operator(a_variant("zoo.animals:Tripler"))
    operator.load("cpu")
    assert operator.predict([1, 2]) == [3, 6]
    assert operator.warm_up() == [1]


def test_a_function_is_an_operator_that_gets_the_batch_and_the_arguments() -> None:
    operator: Any = load_operator(a_variant("zoo.animals:shout", mark="!"))
    operator.load("cpu")
    assert operator.predict(["a", "b"]) == ["A!", "B!"]


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("zoo.animals", "read/v: 'zoo.animals' names no class or function; write it as"),
        ("zoo.animals:Dubler", "module zoo.animals has no 'Dubler'; did you mean 'Doubler'?"),
        ("zoo.animal:Doubler", "package zoo has no module 'animal'; did you mean 'animals'?"),
        ("zoo.xyz:Doubler", "no module 'xyz'; it has animals, hungry, leaves, lost, picky, wrong"),
        ("zoo.animals.small:Cat", "'zoo.animals' in .* is a module, not a package"),
        ("circus:Lion", "no module 'circus' for 'circus:Lion': it is neither beside the pipeline"),
    ],
)  # fmt: skip
def test_a_name_that_leads_nowhere_is_refused_with_the_nearest_one(
    reference: str, sentence: str
) -> None:
    with pytest.raises(BadReference, match=sentence):
        load_operator(a_variant(reference, factor=1))


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("Doubler", {"facto": 2},
         "required argument: 'factor'; it has no 'facto'; did you mean 'factor'?"),
        ("Doubler", {"factor": 1, "ofset": 2},
         "unexpected keyword argument 'ofset'; did you mean 'offset'?"),
        ("Doubler", {}, "missing a required argument: 'factor'; it takes factor, offset"),
        ("shout", {"mrk": "!"}, "unexpected keyword argument 'mrk'; did you mean 'mark'?"),
        ("shout", {"batch": 1}, "multiple values for argument 'batch'"),
        ("nothing", {}, "too many positional arguments"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_refused(
    name: str, arguments: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BadArguments, match=sentence):
        load_operator(a_variant(f"zoo.animals:{name}", **arguments))


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("zoo.animals:Silent", "zoo.animals:Silent has no method predict; an operator needs"),
        ("zoo.animals:Empty", "zoo.animals:Empty has no method predict; an operator needs"),
        ("zoo.animals:__doc__", "is no class and no Python function; name one of these"),
    ],
)
def test_non_operator_is_refused(reference: str, sentence: str) -> None:
    with pytest.raises(BadOperator, match=sentence):
        load_operator(a_variant(reference))


def test_a_module_that_needs_a_missing_extra_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(
        MissingExtra, match=r"read/v: onnxruntime is not .* pip install 'headrace\[onnx\]'"
    ):
        load_operator(a_variant("zoo.hungry:Lion"))


@pytest.mark.parametrize("name", ["torch", "torchvision", "transformers", "safetensors"])
def test_a_missing_library_names_its_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=rf"^{name} is not .* pip install 'headrace\[torch\]'$"):
        library(name)


def test_a_users_own_missing_import_goes_through_as_it_is() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        resolve("zoo.lost:Lion")


def test_preloading_imports_what_operators_name_and_keeps_quiet_about_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    module = types.ModuleType("needs_colorsys")
    module.Needs = type("Needs", (), {"libraries": ("colorsys", "not_installed_anywhere")})
    monkeypatch.setitem(sys.modules, "needs_colorsys", module)
    preload(
        Variant(task="t", name=name, operator=operator)
        for name, operator in (("a", "no_such:Thing"), ("b", "needs_colorsys:Needs"))
    )
    assert "colorsys" in sys.modules


def test_preloading_imports_what_an_operator_named_in_the_arguments_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    module = types.ModuleType("wraps")
    module.Inner = type("Inner", (), {"libraries": ("colorsys",)})
    module.Outer = type("Outer", (), {})
    monkeypatch.setitem(sys.modules, "wraps", module)
    arguments = {"reader": "wraps:Inner", "votes": 3, "note": "no_such:Thing"}
    preload([Variant(task="t", name="v", operator="wraps:Outer", arguments=arguments)])
    assert "colorsys" in sys.modules


def test_preloading_asks_an_operator_with_the_arguments_of_each_variant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []

    def asked(arguments: Mapping[str, Any]) -> None:
        seen.append(arguments["architecture"])
        raise ValueError("this one is not installed")

    module = types.ModuleType("lazy")
    module.Lazy = type("Lazy", (), {"preload": staticmethod(asked)})
    monkeypatch.setitem(sys.modules, "lazy", module)
    preload(
        Variant(task="t", name=name, operator="lazy:Lazy", arguments={"architecture": name})
        for name in ("vit", "bert")
    )
    assert seen == ["vit", "bert"]


@pytest.mark.parametrize(
    ("operator", "sentence"),
    [
        ("zoo.lost:X", "raised ModuleNotFoundError: No module named 'no_such_library' (at lost."),
        ("zoo.wrong:X", "raised SyntaxError"),
        ("zoo.leaves:X", "raised SystemExit: no licence (at leaves.py:2 <module>"),
        ("zoo.picky:Picky", "raised ValueError: no table (at picky.py:3 __init__: raise"),
    ],
)  # fmt: skip
def test_what_a_users_module_raises_is_one_sentence_with_its_frames(
    operator: str, sentence: str
) -> None:
    with pytest.raises(BadOperator) as caught:
        load_operator(a_variant(operator))
    assert str(caught.value).startswith("read/v: ")
    assert sentence in str(caught.value)
