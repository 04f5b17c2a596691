"""Product code decides by enumerations and never by the sentences that people read.

Sentences may change with any release. What records of earlier releases say in sentences alone is
inferred once, in ``schemas/codec/older_releases.py``.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "profiles", "control", "operators", "streams", "headrace", "benchmarks")
FOLDERS = sorted({path.parent for package in PACKAGES for path in (ROOT / package).rglob("*.py")})

# Fields and variables that hold sentences.
PROSE = frozenset(("reason", "refused", "binding", "message", "sentence", "rerouted"))
# Methods that inspect a text.
READS = frozenset(
    (
        "startswith", "endswith", "find", "index", "count", "split", "rsplit", "partition",
        "rpartition", "removeprefix", "removesuffix", "match", "fullmatch", "search", "sub",
        "findall", "finditer",
    )
)  # fmt: skip
INFERRED = ("schemas/codec/older_releases.py",)
# The module itself, and texts other than task/variant: names of counts, keys of records, shares.
SLASHES = (
    "schemas/variant_id.py",
    "schemas/count_names.py",
    "streams/control_app/control_records.py",
    "headrace/cli/roles.py",
)


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def last_name(node: ast.expr) -> str:
    """Return ``reason`` for ``plan.reason``, ``reason`` and ``plan.reason.lower()``."""
    if isinstance(node, ast.Call):
        node = node.func.value if isinstance(node.func, ast.Attribute) else node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def is_prose(node: ast.expr) -> bool:
    return last_name(node) in PROSE


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != ""


def reads_prose(node: ast.AST) -> bool:
    """Return whether a call or a comparison inspects a sentence or compares it with a literal."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        looked_at = [node.func.value, *node.args]
        # A Kafka message has a method partition, without arguments.
        reads = node.func.attr in READS and bool(node.args)
        return reads and any(map(is_prose, looked_at))
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        inside = any(isinstance(op, ast.In | ast.NotIn) for op in node.ops)
        if inside and is_prose(sides[-1]) and not isinstance(sides[-1], ast.Call):
            return is_text(sides[0])
        equal = any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops)
        return equal and any(map(is_prose, sides)) and any(map(is_text, sides))
    return False


def splits_a_slash(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("split", "rsplit", "partition", "rpartition")
        and any(isinstance(arg, ast.Constant) and arg.value == "/" for arg in node.args)
    )


def joins_task_and_variant(node: ast.AST) -> bool:
    """Return whether the node is an f-string that contains ``{...task}/{...}``."""
    if not isinstance(node, ast.JoinedStr):
        return False
    return any(
        isinstance(left, ast.FormattedValue)
        and last_name(left.value) == "task"
        and isinstance(slash, ast.Constant)
        and slash.value == "/"
        and isinstance(right, ast.FormattedValue)
        for left, slash, right in zip(node.values, node.values[1:], node.values[2:], strict=False)
    )


Rule = Callable[[ast.AST], bool]
TASK_AND_VARIANT = "use variant_id and variant_key of schemas/variant_id.py"
# What to write instead, and the modules that may break the rule.
RULES: Mapping[Rule, tuple[str, Sequence[str]]] = {
    reads_prose: ("compare an enumeration instead", INFERRED),
    splits_a_slash: (TASK_AND_VARIANT, SLASHES),
    joins_task_and_variant: (TASK_AND_VARIANT, SLASHES),
}


# Every source that breaks a rule has one of these words, a slash in quotes or one beside a brace.
MAY_BREAK = re.compile(rf"\b({'|'.join(PROSE)})\b|[\"']/[\"']|\}}/|/\{{")


def found(source: str) -> Iterator[tuple[Rule, int]]:
    """Yield the lines of a source that break a rule, with the rule."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call | ast.Compare | ast.JoinedStr):
            yield from ((rule, node.lineno) for rule in RULES if rule(node))


def faults(path: Path) -> Iterator[str]:
    source = path.read_text()
    if not MAY_BREAK.search(source):  # parsing all sources takes four seconds
        return
    for rule, line in found(source):
        instead, allowed = RULES[rule]
        if place(path) not in allowed:
            yield f"{place(path)}:{line}: {instead}"


@pytest.mark.parametrize("folder", FOLDERS, ids=place)
def test_no_decision_reads_a_sentence_and_one_module_splits_and_joins_task_and_variant(
    folder: Path,
) -> None:
    assert [each for path in sorted(folder.glob("*.py")) for each in faults(path)] == []


@pytest.mark.parametrize(
    "bad",
    [
        "plan.reason.startswith('lost')",
        "'lost ' in plan.reason",
        "re.match(PATTERN, answer.reason)",
        "PATTERN.fullmatch(reason)",
        "plan.reason.lower().endswith('x')",
        "result.message == 'done'",
        "reason.split('; ')",
    ],
)
def test_a_decision_by_a_sentence_is_found(bad: str) -> None:
    assert list(found(bad)) == [(reads_prose, 1)]
    assert MAY_BREAK.search(bad)


@pytest.mark.parametrize(
    "good",
    [
        "plan.reason == ''",
        "end.reason == answer.reason",
        "words(plan.reason)",
        "reason in reasons",
        "code == ReasonCode.PAUSED",
        "'x' in plan.causes",
        "message.partition()",
    ],
)
def test_the_check_accepts_code_that_reads_no_sentence(good: str) -> None:
    assert list(found(good)) == []


def test_a_split_or_a_join_of_task_and_variant_is_found() -> None:
    for bad, rule in (
        ("key.partition('/')", splits_a_slash),
        ("f'{hop.task}/{hop.variant}'", joins_task_and_variant),
    ):
        assert list(found(bad)) == [(rule, 1)]
        assert MAY_BREAK.search(bad)
    assert list(found("f'{name}/{count}'")) == []
