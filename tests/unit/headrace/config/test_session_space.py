"""Knobs, tiers, links and objectives of a pipeline file."""

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.cli.main import run
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file, search_space
from headrace.config.profile_files import measured_space
from headrace.errors import PipelineError
from profiles.profile_table import ProfileTable
from tests.control_world import an_entry

YAML = """\
name: planned
slo: {latency: 120ms, accuracy: 0.9, cost: 0.2}
policy: compass
policies:
  compass: {kind: compass, deadline: 2s, samples: {least: 20, most: 60}}
tasks:
  scan:
    children: [read]
    tiers: [handheld]
    knobs: {scale: [1, 0.75, 0.5], denoise: [none, median]}
    variants: {scan: {operator: "shop:Scan", arguments: {scale: $scale}}}
  read:
    knobs: {votes: [1, 3]}
    variants:
      mlp: {operator: "shop:Mlp"}
      cnn: {operator: "shop:Cnn", arguments: {votes: $votes}}
cluster:
  tiers:
    handheld: {speed: 0.15, per: session}
    depot: {speed: 0.5, count: 2, price: 0.05, memory: 4GB}
    cloud: {device: cpu, speed: 1, count: 2, price: 0.2}
  links:
    handheld>depot: {rate: 8Mbps, delay: 5ms}
    handheld>cloud: {rate: 2Mbps, delay: 40ms}
    depot>cloud: {rate: 100Mbps, delay: 15ms}
"""


def read(folder: Path, text: str = YAML) -> PipelineFile:
    (folder / "planned.yaml").write_text(text)
    return read_pipeline_file(folder / "planned.yaml")


def test_the_space_is_the_product_of_knobs_variants_and_tiers(tmp_path: Path) -> None:
    sessions = read(tmp_path).sessions
    assert sessions is not None
    space = sessions.space
    assert (space.configuration_count, space.placement_count, space.plans) == (24, 3, 72)
    assert (sessions.latency_s, sessions.accuracy, sessions.usd_per_h) == (0.12, 0.9, 0.2)
    assert sessions.origin == "handheld"
    assert sessions.setting("scan", 0) == "scan/scan@scale=1,denoise=none"
    assert sessions.setting("read", 23) == "read/cnn@votes=3"
    assert sessions.values["scan.scale"]["0.75"] == 0.75


def test_a_configuration_names_a_variant_and_fills_its_options(tmp_path: Path) -> None:
    file = read(tmp_path)
    sessions = file.sessions
    assert sessions is not None
    settings = [sessions.setting(task, 23) for task in ("scan", "read")]
    variants = [sessions.variant(file.pipeline, setting) for setting in settings]
    assert [(v.key, dict(v.arguments)) for v in variants] == [
        ("scan/scan@scale=0.5,denoise=median", {"scale": 0.5}), ("read/cnn@votes=3", {"votes": 3}),
    ]  # fmt: skip


def test_links_are_symmetric_unless_given_both_ways(tmp_path: Path) -> None:
    text = YAML.replace("    depot>cloud:", "    cloud>handheld: {rate: 16Mbps}\n    depot>cloud:")
    sessions = read(tmp_path, text).sessions
    assert sessions is not None
    links = {pair: (link.bytes_per_s, link.delay_s) for pair, link in sessions.links.items()}
    assert links["handheld", "cloud"] == (250_000, 0.04)
    assert links["cloud", "handheld"] == (2_000_000, 0.0)
    assert links["cloud", "depot"] == links["depot", "cloud"] == (12_500_000, 0.015)


def test_a_plain_slo_and_a_file_without_tiers_stay_valid(tmp_path: Path) -> None:
    text = """\
name: plain
slo: 100ms
tasks: {read: {variants: {mlp: {operator: "shop:Mlp"}}}}
cluster: {devices: {cpu: 1}}
"""
    file = read(tmp_path, text)
    assert (file.sessions, file.pipeline.slo_s) == (None, 0.1)


def test_a_link_of_rate_0_is_none(tmp_path: Path) -> None:
    """A worker ended, and with measured transfers the control app, by a division by 0."""
    sessions = read(tmp_path, YAML.replace("rate: 8Mbps", "rate: 0Mbps")).sessions
    assert sessions is not None
    assert {("handheld", "depot"), ("depot", "handheld")}.isdisjoint(sessions.links)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("tiers: [handheld]", "tiers: [hand]", "which is no tier"),
        ("handheld>depot:", "handheld>moon:", "is no link; write TIER>TIER"),
        ("rate: 8Mbps", "rate: 8", "which is no rate; write one such as 8Mbps"),
        ("scale: $scale", "scale: $size", "has no knob 'size'"),
        ("denoise: [none, median]", "denoise: [none, none]", "has an option twice"),
        ("denoise: [none, median]", "denoise: []", "it needs one entry at least"),
        ("accuracy: 0.9", "accuracy: 90", "must be a number from 0 to 1"),
        ("cost: 0.2", "price: 0.2", "write latency, and accuracy and cost"),
        ("speed: 0.5, count: 2,", "speed: 0.5,", "has no devices; give their count"),
        ("speed: 0.15", "sped: 0.15", "is no known key"),
        ("depot: {speed: 0.5, count: 2,", "depot: {speed: 0.5, count: 63,", "which has 64 slots"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in YAML
    with pytest.raises(PipelineError, match=words.replace("[", r"\[")):
        read(tmp_path, YAML.replace(old, new, 1))


@pytest.mark.thorough
def test_an_enormous_space_is_refused_with_the_largest_knob_named(tmp_path: Path) -> None:
    options = ", ".join(str(each) for each in range(60_000))
    with pytest.raises(PipelineError, match=r"more than 1,000,000; shorten scan\.scale"):
        read(tmp_path, YAML.replace("[1, 0.75, 0.5]", f"[{options}]"))


def test_knobs_without_tiers_are_refused(tmp_path: Path) -> None:
    text = YAML[: YAML.index("  tiers:\n    handheld")] + "  devices: {cpu: 2}\n"
    with pytest.raises(PipelineError, match="the cluster has no tiers"):
        read(tmp_path, text.replace("    tiers: [handheld]\n", ""))


def test_validate_counts_the_space(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "shop.py").write_text(
        "class Scan:\n    def __init__(self, **a): pass\n"
        "    def load(self, device): pass\n    def predict(self, batch): return batch\n"
        "class Mlp(Scan): pass\nclass Cnn(Scan): pass\n"
    )
    (tmp_path / "planned.yaml").write_text(YAML)
    assert run(["validate", str(tmp_path / "planned.yaml")]) == 0
    assert "24 configurations, 72 query plans" in capsys.readouterr().out


REFERENCE = """\
profiling:
  truth: reference
  reference: {scan.scale: 1, scan.denoise: median, read.variant: cnn, read.votes: 3}
"""


def test_a_reference_is_a_configuration_and_makes_another_space(tmp_path: Path) -> None:
    plain, judged = read(tmp_path).sessions, read(tmp_path, YAML + REFERENCE).sessions
    other = read(tmp_path, YAML + REFERENCE.replace("cnn", "mlp")).sessions
    assert plain is not None
    assert judged is not None
    assert judged.reference is not None
    assert judged.space.named(judged.reference) == {
        "scan.scale": "1", "scan.denoise": "median", "read.variant": "cnn", "read.votes": "3",
    }  # fmt: skip
    assert other is not None
    # Scores with another truth are not history for these.
    assert len({each.space.digest for each in (plain, judged, other)}) == 3


def test_with_feedback_profilers_run_without_a_workload(tmp_path: Path) -> None:
    text = YAML + "profiling: {truth: feedback}\nlabels: {}\n"
    with_labels, without = read(tmp_path, text), read(tmp_path)
    assert with_labels.sessions is not None
    assert without.sessions is not None
    assert (with_labels.sessions.profilers, without.sessions.profilers) == (1, 0)
    assert (with_labels.cluster.profilers, without.cluster.profilers) == (1, 0)


def test_changed_operators_arguments_and_weights_make_another_space(tmp_path: Path) -> None:
    """Sessions were served by the profiles of the weights before: only names counted."""
    weights = tmp_path / "mlp.bin"
    weights.write_bytes(b"old")
    with_weights = YAML.replace('"shop:Mlp"', '"shop:Mlp", arguments: {weights: mlp.bin}')
    assert with_weights != YAML
    texts = [
        YAML,
        with_weights,
        YAML.replace("shop:Cnn", "shop:Gnn"),
        YAML.replace("votes: $votes", "votes: $votes, seed: 2"),
        YAML + "combine: shop:joined\n",
    ]
    digests = [search_space(read(tmp_path, text)).space.digest for text in texts]
    assert len(set(digests)) == len(texts)
    assert search_space(read(tmp_path, with_weights)).space.digest == digests[1]
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mlp.bin").write_bytes(b"old")
    copied = search_space(read(tmp_path / "elsewhere", with_weights))
    assert copied.space.digest == digests[1]  # as on another host
    weights.write_bytes(b"new")
    assert search_space(read(tmp_path, with_weights)).space.digest != digests[1]


def test_variants_have_the_memory_of_their_profiles(tmp_path: Path) -> None:
    entries = [
        replace(an_entry("read", "cnn", 100.0, 0.9), device=device, memory_bytes=size)
        for device, size in (("cpu", 10), ("cuda:0", 30), ("cuda:1", 20))
    ]
    profile = ProfileTable("planned", tuple(entries))
    assert measured_space(read(tmp_path), profile).memory == {"read/cnn": 30}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("profiling: {truth: feedback}\n", "truth is feedback, but the file has no labels"),
        ("profiling: {truth: reference}\n",
         "profiling.truth is reference, but profiling.reference has no option of read.variant; "
         "add read.variant: cnn, or another of mlp, cnn"),
        (REFERENCE.replace("cnn", "gnn"), "reference.read.variant is gnn; write one of mlp, cnn"),
        (REFERENCE.replace("}", ", read.size: 3}"), "reference.read.size is 3; write one"),
        (REFERENCE.replace("truth: reference", "truth: workload"),
         "profiling.reference is given, but profiling.truth is workload; write truth: reference"),
        ("profiling: {truth: guess}\n", "profiling.truth"),
        ("profiling: {inputs: {cam 1: 'localhost:9092'}}\n", "inputs.cam 1 is no id of a session"),
        ("profiling: {inputs: {cam-1: localhost}}\n",
         "profiling.inputs.cam-1 is 'localhost'; write the address of a broker as in cam-1: host"),
    ],
)  # fmt: skip
def test_a_truth_that_lacks_something_is_one_sentence(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(PipelineError) as raised:
        read(tmp_path, YAML + text)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
