"""The pipeline file: its parsed form, and each error by its key words."""

import json
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from control.estimation.estimators import ESTIMATORS
from control.per_query.batching import BATCHERS
from control.per_query.dropping import BUDGETS, RULES
from control.policies import POLICIES, policy_named
from control.problem.routes import ROUTINGS
from headrace.config.cluster import Cluster
from headrace.config.pipeline_file import read_pipeline_file, resolve_paths, weights_sha256
from headrace.config.policy_sections import section_of
from headrace.config.profile_files import load_profile, planning_profile
from headrace.config.sections import (
    CLUSTER_SECTIONS,
    EXAMPLES,
    SECTIONS,
    Section,
    merged_mistakes,
)
from headrace.config.user_functions import load_combine, load_split, load_workload
from headrace.errors import PipelineError
from schemas.durations import duration
from schemas.pipeline import ClassShare, Pipeline, Policy, Task, Variant
from tests.typed_files import RANK, a_typed_file

GOOD = """\
name: postcode
slo: 300ms
input: raw
results: json
combine: shop.pipeline:join
slo_classes: {bulk: 2s}
tasks:
  read:
    slots: 8
    variants:
      forest:
        operator: shop.read:Forest
        arguments: {weights: forest.txt, trees: 12}
        batch: 32
        replicas: 2
  locate:
    children: [read]
    variants:
      net: {operator: "shop.locate:Net", replicas: 1}
policy: fast
policies:
  fast: {kind: static, replicas: {read/forest: 3, locate/net: 1}, batch: {read/forest: 64}}
cluster:
  devices: {cpu: 3, "cuda:0": 1}
  egress: 2
profiles: [profile-cpu.json]
workload: shop.workload:Postcodes
"""


@pytest.fixture(autouse=True)
def _same_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def written(folder: Path, text: str) -> Path:
    path = folder / "pipeline.yaml"
    path.write_text(textwrap.dedent(text))
    (folder / "forest.txt").write_text("trees")
    return path


def refusal(folder: Path, text: str) -> str:
    """Return the one-sentence error of the file, without its folder."""
    with pytest.raises(PipelineError) as caught:
        read_pipeline_file(written(folder, text))
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(f"{folder}/", "")


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1
    return GOOD.replace(old, new)


def pipeline_of_good(folder: Path) -> Pipeline:
    """Return the pipeline of ``GOOD`` from a file in ``folder``."""
    net = Variant(task="locate", name="net", operator="shop.locate:Net", replicas=1)
    forest = Variant(
        task="read",
        name="forest",
        operator="shop.read:Forest",
        arguments={"weights": str(folder / "forest.txt"), "trees": 12},
        batch=32,
        replicas=2,
    )
    return Pipeline(
        name="postcode",
        slo_s=0.3,
        tasks=(
            Task(name="locate", variants=(net,), children=("read",)),
            Task(name="read", variants=(forest,), slots=8),
        ),
        policies=(
            Policy(name="static", options={"traffic": {}}),
            Policy(
                name="fast",
                replicas={"read/forest": 3, "locate/net": 1},
                batch={"read/forest": 64},
                options={"traffic": {}},
            ),
        ),
        policy="fast",
        results="json",
        combine="shop.pipeline:join",
        slo_classes={"bulk": 2.0},
        class_shares={"bulk": ClassShare()},
    )


def test_a_file_becomes_a_pipeline_with_its_root_first(tmp_path: Path) -> None:
    file = read_pipeline_file(written(tmp_path, GOOD))
    assert file.pipeline == pipeline_of_good(tmp_path)
    assert file.cluster == Cluster((("cpu", 3), ("cuda:0", 1)), ingress=1, egress=2, profilers=1)
    assert file.profiles == (tmp_path / "profile-cpu.json",)
    assert file.workload == "shop.workload:Postcodes"
    assert file.path == tmp_path / "pipeline.yaml"
    assert sys.path[0] == str(tmp_path)


@pytest.mark.parametrize(
    ("text", "seconds"), [("300ms", 0.3), ("2s", 2.0), ("250us", 0.00025), ("1.5 s", 1.5)]
)
def test_durations_name_their_unit(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("limits", "found"),
    [
        ("{time: 1.5s, memory: 512MB}", (1.5, 512_000_000)),
        ("{memory: 2 GiB}", (None, 2 << 30)),
        ("{}", (None, None)),
    ],
)
def test_limits_are_a_time_a_memory_or_both(
    tmp_path: Path, limits: str, found: tuple[float | None, int | None]
) -> None:
    text = changed("batch: 32", f"limits: {limits}")
    pipeline = read_pipeline_file(written(tmp_path, text)).pipeline
    (forest,) = [v for v in pipeline.task("read").variants if v.name == "forest"]
    assert (forest.time_limit_s, forest.memory_limit_bytes) == found


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("batch: 32", "limits: {memory: 512}",
         ":14: tasks.read.variants.forest.limits.memory is 512, which is no size; write one"),
        ("batch: 32", "limits: {memory: 2 Gigs}", "is '2 Gigs', which is no size; write one such"),
        ("batch: 32", "limits: {tme: 2s}", "limits.tme is no known key; did you mean 'time'?"),
        ("slo: 300ms", "slo: 300", ":2: slo is 300 without a unit; write 300ms or 300s"),
        ("slo: 300ms", "slo: '300'", ":2: slo is '300' without a unit; write 300ms or 300s"),
        ("slo: 300ms", "slo: 5min", ":2: slo is '5min', but 'min' is no unit here; use us, ms or"),
        ("slo: 300ms", "slo: soon", ":2: slo is 'soon', which is no duration; write one such as"),
        ("slo: 300ms", "slo: 0ms", ":2: slo is 0; it must be above 0"),
        ("slo: 300ms", f"slo: {'9' * 400}s", ":2: slo is above 1000000000s; write a shorter one"),
        ("batch: 32", f"limits: {{memory: {'9' * 400}GB}}",
         ":14: tasks.read.variants.forest.limits.memory is above 1000000000GB; write one such"),
        ("cpu: 3", "cpu: 2000000000",
         ":24: cluster.devices.cpu is 2000000000; it must be 100000 or less"),
        ("slo: 300ms", "slo: true", ":2: slo is True, which is no duration"),
        ("slo: 300ms\n", "", ":1: slo is missing; add a line such as: slo: 300ms"),
        ("{bulk: 2s}", "{bulk: 2}", ":6: slo_classes.bulk is 2 without a unit; write 2ms or 2s"),
        ("slo: 300ms", "slo: 300ms\ndeadline: {most: 1s}",
         ":3: deadline.most is 1 s, but an SLO of the file is 2 s; raise it"),
        ("slo: 300ms", "slo: 300ms\ndeadline: {most: 600s}",
         ":3: deadline.most is 600 s; work is kept for ten minutes, so 480 s at most"),
        ("slo: 300ms", "slo: 481s",
         ":2: slo is 481 s; work is kept for ten minutes, so 480 s at most"),
        ("{bulk: 2s}", "{bulk: 600s}",
         ":6: slo_classes.bulk is 600 s; work is kept for ten minutes, so 480 s at most"),
        ("slo: 300ms", "slo: 300ms\ndeadline: {least: 1s}", ":3: deadline.least is no known key"),
        ("name: postcode", "name: Post_Code", ":1: name is 'Post_Code'; it may hold small letters"),
        ("        batch: 32", "        batc: 32",
         ":14: tasks.read.variants.forest.batc is no known key; did you mean 'batch'?"),
        ("slots: 8", "slot: 8", ":9: tasks.read.slot is no known key; did you mean 'slots'?"),
        ("policy: fast", "polcy: fast", ":20: polcy is no known key; did you mean 'polic"),
        ("  egress: 2", "  zzz: 2", ":25: cluster.zzz is no known key; known are devices, ingress"),
        ("kind: static,", "zzz: x,", ":22: policies.fast.zzz is no known key; known are kind"),
        ("batch: 32", "batch: 0", ":14: tasks.read.variants.forest.batch is 0; it must be 1 or"),
        ("batch: 32", "batch: 1.5", "forest.batch is 1.5; write a whole number"),
        ("batch: 32", "batch: '32'", "forest.batch is '32'; write a whole number"),
        ("batch: 32", "batch: true", "forest.batch is True; write a whole number"),
        ("input: raw", "input: json",
         ":3: input is 'json'; it can be 'raw', 'avro' or 'confluent'"),
        ("shop.pipeline:join", "shop.join", ":5: combine is 'shop.join'; write it as package.mod"),
        ('"cuda:0": 1', "cuda: 1", ":24: cluster.devices.cuda: 'cuda' is no device; devices are"),
        ("egress: 2", "egress: 3",
         ":25: cluster.egress is 3, which does not divide egress_partitio"),
        ("egress: 2", "ingress: 5",
         ":25: cluster.ingress is 5, above input_partitions (4), so that some ingresses"),
        ("egress: 2", "share: 0", ":25: cluster.share is 0; it must be above 0 and at most 1"),
        ("egress: 2", "share: 1.5", ":25: cluster.share is 1.5; it must be above 0 and at most 1"),
        ("egress: 2", "share: .nan", ":25: cluster.share is nan; it must be above 0 and at most"),
        ("egress: 2", "share: half", ":25: cluster.share is 'half'; write a number"),
        ("egress: 2", "metrics_port: -1", ":25: cluster.metrics_port is -1; it must be a port"),
        ("cpu: 3", "cpu: 0", ":24: cluster.devices.cpu is 0; it must be 1 or more"),
        ("children: [read]", "children: read", ":17: tasks.locate.children is 'read'; write a li"),
        ("[read]", "[reed]", ":17: tasks.locate.children.0 is 'reed', which is no task; did you m"),
        ("children: [read]", "children: [read]\n    output_schema: x.avsc",
         ":18: tasks.locate.output_schema is for leaf tasks, and locate has children"),
        ("[read]", "[read, read]", ":17: task 'read' is a child of 'locate' and of 'locate'"),
        ("[read]", "[locate]", ":17: tasks go in a circle: locate -> locate; remove one"),
        ("children: [read]", "slots: 4", ":16: tasks 'read' and 'locate' have no parent, but"),
        ("    slots: 8\n", "    slots: 8\n    children: [locate]\n",
         "tasks go in a circle: read -> locate -> read; remove one of these children"),
        ("policy: fast", "policy: fats", ":20: policy is 'fats', which is no policy; did you mean"),
        ("  fast: {", "  static: {", ":22: the policy 'static' always exists"),
        ("kind: static", "kind: statc",
         ":22: policies.fast.kind is 'statc', and no policy of that kind is installed here"),
        ("{read/forest: 64}", "{read/florest: 64}",
         ":22: policy 'fast' names the variant 'read/florest', which is none; did you mean "
         "'read/forest'?"),
        ("{read/forest: 3,", "{read/vit: 3,", "policy 'fast' names the variant 'read/vit', which"),
        ("slots: 8", "slots: 2",
         ":22: policy 'fast' asks for 3 replicas of task 'read', which has 2 slots, one per "
         "replica; raise tasks.read.slots or lower the replicas"),
        ("slots: 8", "slots: 8\n    replicas: {least: 3, most: 2}",
         ":10: tasks.read.replicas.least is 3, and most is 2; least must not be above it"),
        ("slots: 8", "slots: 8\n    replicas: {least: 9}", "but the task has 8 slots; raise slots"),
        ("slots: 8", "slots: 8\n    replicas: {least: 5}",
         ":25: the tasks are to have 6 replicas at least, but the cluster has 4 workers"),
        ("slots: 8", "slots: 8\n    replicas: {lest: 2}",
         ":10: tasks.read.replicas.lest is no known key; did you mean 'least'"),
        ("replicas: 2", "replicas: 9", ":8: policy 'static' asks for 9 replicas of task 'read'"),
        ("read/forest: 3", "read/forest: 5",
         ":22: policy 'fast' asks for 6 replicas but the cluster has 4 workers (cpu: 3, cuda:0: "
         "1); raise cluster.devices or lower replicas"),
        ("replicas: 2", "replicas: 4", ":24: policy 'static' asks for 5 replicas but the cluster"),
        ("replicas: 2", "replicas: 0", ":8: policy 'static' gives task 'read' 0 replicas, so no"),
        ("read/forest: 3", "read/forest: 0", ":22: policy 'fast' gives task 'read' 0 replicas"),
        ("[profile-cpu.json]", "[]\nname: again", "name is here a second time (first on line 1)"),
        ("policy: fast\n", "      net: {operator: 'shop.locate:Other'}\npolicy: fast\n",
         ":20: tasks.locate.variants.net is here a second time (first on line 19); remove or"),
        ("forest.txt", "birch.txt",
         ":13: tasks.read.variants.forest.arguments.weights is 'birch.t"),
        ("weights: forest.txt", "weights: 3", "arguments.weights is 3; write the path of a file"),
        ("read:\n    slots", "on:\n    slots", ":8: the key True in tasks is no text; quote it"),
        ("read:\n    slots", "re d:\n    slots",
         ":8: tasks.re d: the name 're d' may hold letters"),
        ("slo: 300ms", "slo: !!python/name:os.system x",
         "python/name:os.system' is not known here"),
        ("slo: 300ms", "slo: !ms 300", ":2: the tag '!ms' is not known here; write a plain value"),
        ("slo: 300ms", "slo: &a [*a]", ":2: slo.0 contains itself; remove the alias"),
        ("slo: 300ms", "slo: [", "this is no YAML"),
        ("slo: 300ms", "slo: 2001-13-01", ":2: '2001-13-01' cannot be read"),
        ("slo: 300ms", "slo: !!int ''", ":2: '' cannot be read"),
        ("slo: 300ms", "slo: 300ms # \x07",
         ":2: YAML does not allow the character '\\x07'; remove"),
        ("batch: 32", "<<: {batch: 32}",
         ":14: '<<' has no meaning here; write keys and values out"),
        ("slo: 300ms", "slo: 300ms\nprofiling: {trth: reference}",
         ":3: profiling.trth is no known key; did you mean 'truth'?"),
        ("egress: 2", "links: {a>b: {}}", ":25: cluster.links.a>b.rate is missing; write the link"),
    ],
)  # fmt: skip
def test_error_is_reported_with_its_line_and_remedy(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    assert words in refusal(tmp_path, changed(old, new))


def test_every_section_has_its_known_keys_and_an_example_of_each_key_that_is_required() -> None:
    sections = set(Section.__subclasses__())
    assert sections == {*SECTIONS.values(), *CLUSTER_SECTIONS.values()}
    required = {
        name for each in sections for name, key in each.model_fields.items() if key.is_required()
    }
    assert required <= EXAMPLES.keys()


SHORT = """\
name: words
slo: 300ms
tasks:
  split: {operator: "words:Split", batch: 8, children: [shout], replicas: {most: 2}}
  shout:
    variants:
      shout: {operator: "words:Shout"}
cluster: {devices: {cpu: 2}}
"""


def test_a_task_of_one_variant_may_have_its_keys_itself(tmp_path: Path) -> None:
    pipeline = read_pipeline_file(written(tmp_path, SHORT)).pipeline
    only = Variant(task="split", name="split", operator="words:Split", batch=8)
    assert pipeline.task("split").variants == (only,)
    assert (pipeline.task("split").children, pipeline.task("split").most) == (("shout",), 2)
    assert pipeline.task("shout").variants[0].key == "shout/shout"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("batch: 8", "batch: 0", ":4: tasks.split.batch is 0; it must be 1 or more"),
        ("batch: 8", "bach: 8", ":4: tasks.split.bach is no known key; did you mean 'batch'?"),
        ("children", "chldren", ":4: tasks.split.chldren is no known key; did you mean 'children'"),
        ('operator: "words:Split", ', "", ":4: tasks.split.operator is missing; name the class or"),
        ("words:Split", "words.Split", ":4: tasks.split.operator is 'words.Split'; write it as"),
        ("batch: 8", "arguments: {weights: x}", ":4: tasks.split.arguments.weights is 'x'"),
        ("  shout:\n", "  shout:\n    batch: 8\n",
         ":6: tasks.shout.batch stands beside variants; move it into one of them"),
    ],
)  # fmt: skip
def test_error_in_a_single_variant_task_is_reported_by_its_place_in_the_file(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    assert words in refusal(tmp_path, SHORT.replace(old, new, 1))


def test_the_message_starts_with_the_file_as_it_was_named(tmp_path: Path) -> None:
    message = refusal(tmp_path, changed("        batch: 32", "        batc: 32"))
    assert message == (
        "pipeline.yaml:14: tasks.read.variants.forest.batc is no known key; did you mean 'batch'?"
    )


def test_all_errors_are_reported_at_once_by_line(tmp_path: Path) -> None:
    text = changed("slots: 8", "slot: 8").replace("egress: 2", "egress: 0")
    with pytest.raises(PipelineError) as caught:
        read_pipeline_file(written(tmp_path, text))
    first, second = str(caught.value).splitlines()
    assert "tasks.read.slot is no known key" in first
    assert "cluster.egress is 0; it must be 1 or more" in second


def test_at_most_twenty_errors_are_reported() -> None:
    told = [(line, PipelineError(f"f:{line}: wrong")) for line in (*range(25, 0, -1), 3)]
    lines = str(merged_mistakes(told)).splitlines()
    assert (lines[0], lines[19], lines[20:]) == ("f:1: wrong", "f:20: wrong", ["and 5 more"])


def test_a_policy_takes_the_place_of_all_replicas_of_the_variants(tmp_path: Path) -> None:
    text = changed("{read/forest: 3, locate/net: 1}", "{locate/net: 3}")  # read: one at least
    file = read_pipeline_file(written(tmp_path, text))
    assert file.pipeline.policies[1].replicas == {"locate/net": 3}
    too_many = changed("{read/forest: 3, locate/net: 1}", "{locate/net: 4}")
    assert "policy 'fast' asks for 5 replicas" in refusal(tmp_path, too_many)


def test_emulated_devices_need_a_profile(tmp_path: Path) -> None:
    text = changed('{cpu: 3, "cuda:0": 1}', "{emulated: 20}").replace("[profile-cpu.json]", "[]")
    assert "emulated devices wait what a profile says" in refusal(tmp_path, text)


@pytest.mark.parametrize("text", ["", "# nothing\n"])
def test_an_empty_file_is_refused(tmp_path: Path, text: str) -> None:
    assert "pipeline.yaml is empty; a pipeline file has name" in refusal(tmp_path, text)


def test_a_list_is_no_pipeline(tmp_path: Path) -> None:
    assert ":1: the file is [1, 2]; write keys and values below it" in refusal(tmp_path, "[1, 2]")


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"nowhere.yaml is not there; name an existing"):
        read_pipeline_file(tmp_path / "nowhere.yaml")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="is a folder; name the pipeline file in it"):
        read_pipeline_file(tmp_path)


def test_arguments_under_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    assert resolve_paths({"mode": "a"}, {"model": "m/x.bin", "vocabulary": "/v"}, tmp_path, {}) == {
        "mode": "a", "model": str(tmp_path / "m/x.bin"), "vocabulary": "/v",
    }  # fmt: skip


def test_of_the_arguments_only_weights_is_a_path(tmp_path: Path) -> None:
    assert resolve_paths({"weights": "a/b.txt", "mode": "a/b.txt"}, {}, tmp_path, {}) == {
        "weights": str(tmp_path / "a/b.txt"),
        "mode": "a/b.txt",
    }


def profile_of(sha256: str, operator: str = "shop.read:Forest") -> str:
    row = {"batch": 1, "repeats": 5} | {
        f"{quantile}_s": 0.01 for quantile in ("mean", "p50", "p90", "p95", "p99")
    }
    entry = {
        "task": "read", "variant": "forest", "device": "cpu", "operator": operator,
        "weights_sha256": sha256, "load_s": 0.1, "memory_bytes": 5, "accuracy": 0.9,
        "children": {}, "latency": [row],
    }  # fmt: skip
    return json.dumps({"pipeline": "postcode", "provenance": {}, "entries": [entry]})


def test_a_profile_of_these_weights_is_loaded(tmp_path: Path) -> None:
    file = read_pipeline_file(written(tmp_path, GOOD))
    sha256 = weights_sha256(file.pipeline.task("read").variants[0])
    (tmp_path / "profile-cpu.json").write_text(profile_of(sha256))
    assert load_profile(file).latency_s("read", "forest", "cpu", 1) == 0.01


def test_a_port_for_metrics_is_the_clusters(tmp_path: Path) -> None:
    file = read_pipeline_file(written(tmp_path, changed("egress: 2", "metrics_port: 9400")))
    assert file.cluster.metrics_port == 9400


@pytest.mark.parametrize(("line", "latency_s"), [("egress: 2", 0.01), ("share: 0.25", 0.04)])
def test_plans_count_on_the_share_of_the_devices(
    tmp_path: Path, line: str, latency_s: float
) -> None:
    file = read_pipeline_file(written(tmp_path, changed("egress: 2", line)))
    sha256 = weights_sha256(file.pipeline.task("read").variants[0])
    (tmp_path / "profile-cpu.json").write_text(profile_of(sha256))
    assert planning_profile(file).latency_s("read", "forest", "cpu", 1) == latency_s
    assert load_profile(file).latency_s("read", "forest", "cpu", 1) == 0.01


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (profile_of("0" * 64), r"measured with other weights .*run `headrace profile pipeline"),
        (profile_of(""), r"other weights \(SHA-256 none, found"),
        (profile_of("", "shop.read:Net"), "measured with the operator shop.read:Net, but the pipe"),
        ("{", "profile-cpu.json: this is no JSON"),
    ],
)
def test_a_profile_that_does_not_fit_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = read_pipeline_file(written(tmp_path, GOOD))
    (tmp_path / "profile-cpu.json").write_text(text)
    with pytest.raises(PipelineError, match=words):
        load_profile(file)


def test_a_missing_profile_is_reported_when_it_is_loaded(tmp_path: Path) -> None:
    file = read_pipeline_file(written(tmp_path, GOOD))
    with pytest.raises(PipelineError, match=r"profile-cpu.json is not there; run `headrace prof"):
        load_profile(file)


def test_two_profiles_become_one_table(tmp_path: Path) -> None:
    file = read_pipeline_file(
        written(tmp_path, changed("[profile-cpu.json]", "[profile-cpu.json, gpu.json]"))
    )
    text = profile_of(weights_sha256(file.pipeline.task("read").variants[0]))
    (tmp_path / "profile-cpu.json").write_text(text)
    (tmp_path / "gpu.json").write_text(text.replace('"cpu"', '"cuda:0"'))
    assert [entry.device for entry in load_profile(file).entries] == ["cpu", "cuda:0"]


def test_a_file_without_profiles_has_an_empty_table(tmp_path: Path) -> None:
    file = read_pipeline_file(written(tmp_path, changed("profiles: [profile-cpu.json]\n", "")))
    assert load_profile(file).entries == ()


def test_missing_weights_are_reported(tmp_path: Path) -> None:
    file = read_pipeline_file(written(tmp_path, GOOD))
    (tmp_path / "forest.txt").unlink()
    with pytest.raises(PipelineError, match=r"forest.txt of read/forest cannot be read"):
        weights_sha256(file.pipeline.task("read").variants[0])


WORKLOAD = """\
class Postcodes:
    def queries(self, rng): ...
    def score(self, result, truth): ...
    def task_inputs(self, task, n, rng): ...
    def task_score(self, task, output, truth): ...

class Half:
    def queries(self, rng): ...
    def score(self, result, truth): ...

def join(outputs): ...

number = 3
"""


def with_module(folder: Path, text: str, module: str) -> Path:
    """Return a file whose workload and combine are in a module that no other test imports."""
    (folder / f"{module}.py").write_text(WORKLOAD)
    return written(folder, text.replace("shop.workload", module).replace("shop.pipeline", module))


def test_the_workload_beside_the_file_is_found(tmp_path: Path) -> None:
    file = read_pipeline_file(with_module(tmp_path, GOOD, "wl_good"))
    assert type(load_workload(file)).__name__ == "Postcodes"
    combine = load_combine(file.pipeline)
    assert combine is not None
    assert combine.__name__ == "join"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("workload: shop.workload:Postcodes\n", "", "no workload is named; add a line such as"),
        (":Postcodes", ":Nobody", "wl_bad has no Nobody; correct the name"),
        (":Postcodes", ":Half", "Half has no method task_inputs and no task_score; a workload"),
        ("shop.workload:", "wl_gone:", "wl_gone cannot be imported: .*put it beside the pipeline"),
    ],
)
def test_invalid_workload_is_reported(tmp_path: Path, old: str, new: str, words: str) -> None:
    file = read_pipeline_file(with_module(tmp_path, changed(old, new), "wl_bad"))
    with pytest.raises(PipelineError, match=words):
        load_workload(file)


def test_a_missing_workload_names_what_also_serves(tmp_path: Path) -> None:
    """`headrace load` takes one input instead; a file without a workload can be loaded, too."""
    text = changed("workload: shop.workload:Postcodes\n", "")
    file = read_pipeline_file(with_module(tmp_path, text, "wl_none"))
    with pytest.raises(PipelineError, match="Class; or send one with --input FILE"):
        load_workload(file, "send one with --input FILE")


@pytest.mark.parametrize(
    ("new", "words"),
    [(":number", "number, which is no function"), (":join_all", "has no join_all")],
)
def test_invalid_combine_is_reported(tmp_path: Path, new: str, words: str) -> None:
    file = read_pipeline_file(with_module(tmp_path, changed(":join", new), "wl_combine"))
    with pytest.raises(PipelineError, match=words):
        load_combine(file.pipeline)


def test_the_function_that_splits_large_queries_is_loaded_or_reported(tmp_path: Path) -> None:
    assert load_split(read_pipeline_file(a_typed_file(tmp_path)).pipeline) is None
    for spec, words in (("builtins:list", ""), ("builtins:cut", "size.split names .* has no cut")):
        text = RANK.replace("{most: 1000}", f'{{most: 1000, over: split, split: "{spec}"}}')
        pipeline = read_pipeline_file(a_typed_file(tmp_path, text)).pipeline
        if not words:
            assert load_split(pipeline) is list
            continue
        with pytest.raises(PipelineError, match=words):
            load_split(pipeline)


def test_a_pipeline_without_combine_has_none(tmp_path: Path) -> None:
    file = read_pipeline_file(written(tmp_path, changed("combine: shop.pipeline:join\n", "")))
    assert load_combine(file.pipeline) is None


def test_runtime_rules_of_a_policy_come_from_its_kind_or_the_file(
    tmp_path: Path,
) -> None:
    text = GOOD.replace(
        "policies:",
        "policies:\n  ours: {kind: loki, dropping: per-task, utilisation: 0.7, interval: 5s}",
    )
    pipeline = read_pipeline_file(written(tmp_path, text)).pipeline
    assert policy_named(pipeline, "ours") == replace(
        POLICIES["loki"].usual, name="ours", dropping="per-task", utilisation=0.7, interval_s=5.0
    )
    assert policy_named(pipeline, "fast") == Policy(
        name="fast", replicas={"read/forest": 3, "locate/net": 1}, batch={"read/forest": 64},
        options={"traffic": {}},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("key", "known"),
    [
        ("estimator", ESTIMATORS), ("routing", ROUTINGS), ("dropping", RULES), ("budget", BUDGETS),
        ("batching", BATCHERS),
    ],
)  # fmt: skip
def test_policy_can_name_every_rule(key: str, known: Mapping[str, object]) -> None:
    section = section_of(POLICIES["static"])
    for name in known:
        section.model_validate({key: name})
    with pytest.raises(ValidationError, match=f"'{next(iter(known))}'"):
        section.model_validate({key: "nothing"})


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("def join(outputs): return outputs", [1, 2]),
        ("def join(outputs, sep='-'): return outputs", [1, 2]),
        ("def join(outputs, tasks): return dict(zip(tasks, outputs))", {"a": 1, "b": 2}),
        ("def join(outputs, tasks=()): return dict(zip(tasks, outputs))", {"a": 1, "b": 2}),
        ("join = sum", 3),
    ],
)
def test_a_combine_function_may_ask_which_task_each_output_is_of(
    tmp_path: Path, text: str, result: object
) -> None:
    module = f"combine_{abs(hash(text))}"
    (tmp_path / f"{module}.py").write_text(text + "\n")
    file = read_pipeline_file(written(tmp_path, GOOD.replace("shop.pipeline", module)))
    combine = load_combine(file.pipeline)
    assert combine is not None
    assert combine([1, 2], ["a", "b"]) == result
