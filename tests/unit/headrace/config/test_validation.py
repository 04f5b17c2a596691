"""Reports of `validate` and `up` on a file whose policy cannot plan as intended."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.small_cluster import a_cluster
from control.policies import policy_named
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.config.profile_files import load_profile
from headrace.config.validation import (
    check_plannable,
    examined,
    summary_text,
    unmeasured,
    unmoved,
    unprofiled,
    without_effect,
)
from headrace.errors import PipelineError, Unfeasible
from operators.models.model_errors import ModelError
from profiles.measurements import ProfileError
from schemas.pipeline import Labels, Policy
from tests.typed_files import RANK, a_typed_file

EXAMPLES = Path(__file__).parents[4] / "examples"
NO_ROOM = "no variant of task 'locate' fits the memory of a device; the smallest takes 96 MB"


def postcode(memory_bytes: int = 2_000_000_000, slo_s: float = 0.5) -> PipelineFile:
    """Return the example with only its policy `loki`."""
    file = read_pipeline_file(EXAMPLES / "postcode" / "pipeline.yaml")
    only = tuple(policy for policy in file.pipeline.policies if policy.name == "loki")
    assert only
    return replace(
        file,
        pipeline=replace(file.pipeline, slo_s=slo_s, policies=only),
        cluster=replace(file.cluster, memory=(("cpu", memory_bytes),)),
    )


def test_the_example_can_be_planned() -> None:
    check_plannable(postcode())
    assert examined(postcode()).infeasible == {}


def test_variants_that_fit_no_device_are_reported_before_anything_starts() -> None:
    with pytest.raises(Unfeasible, match=f"^policy 'loki': {NO_ROOM}"):
        check_plannable(postcode(memory_bytes=60_000_000))
    (binding,) = examined(postcode(memory_bytes=60_000_000)).infeasible.values()
    assert binding.startswith(NO_ROOM)  # `validate` called the file invalid


def test_a_policy_in_force_without_the_profile_that_it_plans_by_is_bad_input() -> None:
    """`validate` found nothing, and `up` called it infeasible."""
    bare = replace(postcode(), profiles=())
    with pytest.raises(PipelineError, match="policy 'loki': task 'locate' has no profiled variant"):
        check_plannable(bare)
    (warning,) = unprofiled(bare, load_profile(bare))
    assert warning.startswith("policy 'loki' plans by a profile, and the file has none: `up`")
    assert unprofiled(postcode(), load_profile(postcode())) == []
    fixed = replace(bare, pipeline=replace(bare.pipeline, policy="static"))
    assert unprofiled(fixed, load_profile(fixed)) == []


def test_a_policy_that_cannot_plan_the_pipeline_on_any_cluster_is_bad_input() -> None:
    """`up` called it infeasible, and `validate` an error of the file."""
    file = postcode()
    only = replace(file.pipeline, policies=(Policy(name="r", kind="ramsis"),), policy="r")
    for check in (check_plannable, examined):
        with pytest.raises(PipelineError, match="policy 'r' plans for one task"):
            check(replace(file, pipeline=only))


def test_an_slo_below_the_fastest_path_is_named_but_may_be_served() -> None:
    file = postcode(slo_s=0.005)
    check_plannable(file)
    assert set(examined(file).infeasible) == {"loki"}
    assert examined(file).infeasible["loki"].startswith("slo: within 5 ms no path of variants")


def test_a_file_without_a_profile_is_not_judged_by_policies_that_need_one() -> None:
    file = replace(postcode(), profiles=())
    assert examined(file).infeasible == {}


def test_an_slo_that_the_hops_alone_use_up_is_warned_of() -> None:
    file = postcode(slo_s=0.001)
    assert examined(file).warnings == (
        "slo is 1 ms, and the 3 hops of the longest path alone take 4.2 ms (comm: 1.4ms): every "
        "query will be late or dropped; raise it",
    )
    assert summary_text(examined(file)).splitlines()[-1].startswith("warning: slo is 1 ms")
    assert examined(postcode()).warnings == ()


def test_a_batch_above_the_largest_measured_one_is_warned_of() -> None:
    file = postcode()
    table = load_profile(file)
    entry = table.entries[0]
    most = entry.latency[-1].batch

    def warned(kind: str, batch: int) -> list[str]:
        policy = Policy(name="mine", kind=kind, batch={entry.key: batch})
        only = replace(file.pipeline, policies=(policy,), policy="mine")
        return unmeasured(replace(file, pipeline=only), table)

    assert warned("static", most) == []
    assert warned("loki", most + 1) == []
    (warning,) = warned("static", most + 1)
    assert warning.startswith(
        f"policy 'mine' runs {entry.key} in batches of up to {most + 1}, measured up to {most} on "
    )
    # What it warns of:
    with pytest.raises(ProfileError, match=f"lower the batch .* up to {most + 1}"):
        table.latency_s(entry.task, entry.variant, entry.device, most + 1)


def test_a_sample_for_the_warm_up_has_to_be_a_file() -> None:
    file = postcode()
    root = file.pipeline.root
    changed = replace(root, variants=tuple(replace(v, warm_up="/no/a.png") for v in root.variants))
    tasks = (changed, *file.pipeline.tasks[1:])
    with pytest.raises(PipelineError, match=r"names /no/a\.png, which is no file"):
        examined(replace(file, pipeline=replace(file.pipeline, tasks=tasks)))


def test_all_operators_that_cannot_be_loaded_are_reported_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "rows_of_validation.py").write_text(
        "class Init:\n"
        "    def __init__(self): raise RuntimeError('boom')\n"
        "    def load(self, device): pass\n"
        "    def predict(self, batch): return batch\n"
    )
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        "name: rows\nslo: 1s\ncluster: {devices: {cpu: 1}}\ntasks:\n  a:\n    variants:\n"
        "      v:\n        batch: 4\n        operator: 'rows_of_validation:Init'\n"
        "      w: {operator: 'nosuchmodule:B'}\n"
    )
    with pytest.raises(ModelError) as caught:
        examined(read_pipeline_file(path))
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"{path}:9: a/v: rows_of_validation:Init raised RuntimeError: boom (at")
    assert second.startswith(f"{path}:10: a/w: no module 'nosuchmodule'")


def test_policies_that_measured_accuracies_cannot_move_are_named() -> None:
    pipeline = postcode().pipeline
    named = tuple(
        replace(policy_named(pipeline, kind) or pipeline.policies[0], name=kind)
        for kind in ("loki", "inferline", "ramsis", "static")
    )
    asked = replace(pipeline, policies=named, policy="loki", labels=Labels(plan_by="measured"))
    (warning,) = unmoved(asked)
    assert warning.startswith("labels.plan_by is measured, and under inferline, static a task runs")
    assert unmoved(replace(asked, labels=Labels())) == []
    assert unmoved(replace(asked, policies=named[:1])) == []


@pytest.mark.parametrize(("policy", "said"), [("loki", 1), ("ramsis", 1), ("kairos", 0)])
def test_a_policy_that_ignores_the_sizes_of_queries_says_so(
    policy: str, said: int, tmp_path: Path
) -> None:
    text = RANK.replace("policy: kairos", f"policy: {policy}")
    text = text.replace("  budget", "  start: {gpu: 1}\n  budget")
    warnings = examined(read_pipeline_file(a_typed_file(tmp_path, text))).warnings
    assert len(warnings) == said
    assert all(f"{policy} does not look at the size of a query" in each for each in warnings)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch_delay": "5ms"}, "batch_delay has no effect"),
        ({"violation": 0.01, "price": 2}, "price has no effect"),
        ({"discretisation": "model-based", "steps": 50}, "steps has no effect"),
        ({"violation": 0.01, "dispersion": 4, "discretisation": "model-based"}, ""),
    ],
)
def test_options_of_tables_without_effect_are_reported(
    options: dict[str, object], said: str, tmp_path: Path
) -> None:
    policies = {"mine": {"kind": "ramsis", **options}}
    path = a_cluster(tmp_path, children={"read": ()}, fan_out=0, policies=policies)
    found = without_effect(read_pipeline_file(path).pipeline)
    assert [each.startswith(f"policy 'mine': {said}") for each in found] == [True] * bool(said)


def test_options_that_the_policy_or_the_pipeline_ignores_are_reported(tmp_path: Path) -> None:
    policies = {
        "scaled": {"kind": "loki", "replicas": {"read/small": 2}},
        "fixed": {"kind": "static", "replicas": {"read/small": 2, "detect/small": 1}},
        "loaded": {"kind": "loki", "loads": [10, 20]},
    }
    found = without_effect(read_pipeline_file(a_cluster(tmp_path, policies=policies)).pipeline)
    assert [each.split(" has")[0] for each in found] == [
        "policy 'scaled': replicas", "policy 'loaded': loads",
    ]  # fmt: skip
