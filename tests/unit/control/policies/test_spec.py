"""control/policies: the table of policies and the valid values of a policy."""

import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from control.policies import POLICIES, known_kinds, policy_named, selections, spec_of
from control.policies.option_fields import COMMON, GAP, LONGEST_RUN, Option, OptionType
from control.policies.solvers import solve, virtual_s
from control.policies.spec import PolicySpec
from control.problem.lazy_references import object_named, rule_named
from control.problem.problem import PlanError
from schemas.pipeline import Policy
from tests.small_world import a_pipeline

MIND = Option(name="mind", type=OptionType.TEXT, default="open", meaning="what it is like")


def a_spec(**changes: Any) -> PolicySpec:
    whole = {"name": "mine", "summary": "as it likes", "plan": "control.policies.static:allocate"}
    return PolicySpec(**{**whole, **changes})


def test_the_table_is_by_name_and_every_reference_leads_to_a_function() -> None:
    assert [spec.name for spec in POLICIES.values()] == list(POLICIES)
    references = [r for spec in POLICIES.values() for r in (spec.plan, spec.choose) if r]
    assert all(callable(object_named(reference)) for reference in references)


def test_every_rule_of_a_built_in_policy_is_a_permitted_value() -> None:
    for spec in POLICIES.values():
        for option in spec.every_option:
            if option.type is OptionType.CHOICE:
                assert option.of(spec.usual) in option.permitted(), (spec.name, option.name)


def test_common_options_are_the_fields_of_a_policy() -> None:
    rest = {"name", "kind", "options"}
    assert {option.field for option in COMMON} == {field.name for field in fields(Policy)} - rest


def test_policy_options_default_to_those_of_its_kind() -> None:
    spec = a_spec(estimate="ewma", common={"utilisation": 0.5}, options=(MIND, LONGEST_RUN),
                  preset={"longest_run": 7})  # fmt: skip
    given = spec.policy("ours", {"estimator": "trend", "mind": "made up"})
    assert (given.name, given.kind, given.estimator, given.utilisation) == (
        "ours", "mine", "trend", 0.5,
    )  # fmt: skip
    assert (MIND.of(given), LONGEST_RUN.of(given)) == ("made up", 7)
    assert (spec.usual.estimator, MIND.of(spec.usual)) == ("ewma", "open")
    assert GAP.of(spec.usual) == GAP.default  # an option that it does not have


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "mine too"}, "a name may hold letters"),
        ({"plan": "allocate"}, "refers to 'allocate'; write package.module:function"),
        ({"choose": "tables.make"}, "refers to 'tables.make'"),
        ({"options": (MIND, MIND)}, "has two options 'mind'; rename one"),
        ({"options": (Option(name="batch", type=OptionType.WHOLE, meaning=""),)}, "two options"),
        ({"common": {"headway": 1.0}}, "a default for 'headway', which is none of its options"),
        ({"preset": {"gap": 1.0}}, "a default for 'gap', which is none of its options"),
    ],
)
def test_a_value_that_cannot_be_a_policy_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        a_spec(**changes)


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(PlanError, match=r"no policy 'lucky'; known are static, loki, .*proteus"):
        spec_of("lucky")
    with pytest.raises(PlanError, match="no policy 'lucky'"):
        solve("lucky", None)
    assert policy_named(a_pipeline(), "lucky") is None


def test_the_virtual_seconds_of_a_solve_are_those_of_its_kind() -> None:
    assert [virtual_s(each) for each in ("static", "loki", "table")] == [0.01, 0.2, 0.1]


def test_a_rule_is_named_or_referred_to() -> None:
    rules = {"one": 1}
    assert rule_named(rules, "one") == 1
    assert rule_named(rules, "control.policies.option_fields:GAP") is GAP  # type: ignore[comparison-overlap]
    with pytest.raises(KeyError):
        rule_named(rules, "two")


def test_tasks_follow_tables_where_the_kind_permits_it() -> None:
    pipeline = a_pipeline()
    assert selections(pipeline, POLICIES["ramsis"].usual) == {pipeline.root.name: "ramsis"}
    assert selections(pipeline, POLICIES["static"].usual) == {}


# ------------------------------------------------------------------ installed policies

CODE = """
from control.policies.spec import PolicySpec
POLICY = PolicySpec(name="{name}", summary="s", plan="control.policies.static:allocate")
OTHER = 1
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Install a package with one policy in a folder on the path, under a unique module name."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(entry: str, module: str, name: str, value: str = "POLICY") -> None:
        (tmp_path / f"{module}.py").write_text(CODE.format(name=name))
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        lines = f"[headrace.policies]\n{entry} = {module}:{value}\n"
        (info / "entry_points.txt").write_text(lines)
        monkeypatch.delitem(sys.modules, module, raising=False)

    return install


def test_an_installed_policy_is_known_by_its_entry_point(installed: Any) -> None:
    assert "calm" not in known_kinds()
    installed("calm", "calm_policy", "calm")
    assert known_kinds() == (*POLICIES, "calm")
    assert spec_of("calm").summary == "s"
    assert policy_named(a_pipeline(), "calm") == spec_of("calm").usual


def test_a_built_in_policy_comes_before_an_installed_one(installed: Any) -> None:
    installed("loki", "loki_too", "loki")
    assert known_kinds() == tuple(POLICIES)
    assert spec_of("loki") is POLICIES["loki"]


def test_a_package_that_does_not_run_is_refused_like_one_that_is_missing(
    installed: Any, tmp_path: Path
) -> None:
    """`policy list` and `validate` of any file ended with its traceback."""
    installed("worn", "worn_policy", "worn")
    (tmp_path / "worn_policy.py").write_text("def plan(:\n")
    with pytest.raises(PlanError, match=r"'worn' .* cannot be loaded: SyntaxError: invalid syntax"):
        spec_of("worn")


@pytest.mark.parametrize(
    ("entry", "name", "value", "words"),
    [
        ("bad1", "bad1", "MISSING", "cannot be loaded: AttributeError: module 'bad1_policy'"),
        ("bad2", "bad2", "OTHER", "is a int; it must be a PolicySpec"),
        ("bad3", "good", "POLICY", "calls itself 'good'; give both the same name"),
        ("bad4", "no good", "POLICY", "a name may hold letters"),
    ],
)
def test_a_package_that_gives_no_policy_is_refused_when_it_is_named(
    installed: Any, entry: str, name: str, value: str, words: str
) -> None:
    installed(entry, f"{entry}_policy", name, value)
    with pytest.raises(PlanError, match=re.escape(words)):
        spec_of(entry)


PAGES = Path(__file__).parents[4] / "docs" / "explanation"


@pytest.mark.parametrize(
    ("kind", "page"),
    [
        ("loki-paper", "planning"),
        ("ramsis-paper", "ramsis"),
        ("compass-paper", "compass"),
        ("circinus", "compass"),
    ],
)
def test_the_deviations_from_a_paper_are_on_its_page(kind: str, page: str) -> None:
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    part = text.split(f"## Where `{kind}` differs from the paper\n")[1].split("\n## ")[0]
    told = [line.removeprefix("* ") for line in part.splitlines() if line.startswith("* ")]
    assert tuple(told) == POLICIES[kind].deviations
