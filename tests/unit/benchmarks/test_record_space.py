"""A recorded space: every configuration uses the same samples, and stages share prefixes."""

from pathlib import Path

import pytest

from benchmarks.record_space import main
from headrace.config.pipeline_file import read_pipeline_file
from headrace.planning.recorded_truth import read_truth

OPERATORS = """
RUNS = []

class Scan:
    def __init__(self, keep): self.keep = keep
    def load(self, device): pass
    def predict(self, batch):
        RUNS.append("scan")
        return [[each[: self.keep]] for each in batch]

class Read:
    def __init__(self, upper): self.upper = upper
    def load(self, device): pass
    def predict(self, batch):
        words = [each.decode() for each in batch]
        return [word.upper() for word in words] if self.upper else words

class Words:
    def queries(self, rng):
        while True:
            yield b"abc", "ABC"
    def score(self, result, truth): return sum(a == b for a, b in zip(result[0], truth)), len(truth)
    def task_inputs(self, task, n, rng): return [], []
    def task_score(self, task, output, truth): return 0.0
"""

YAML = """\
name: recorded
slo: {latency: 1s, accuracy: 0.9}
workload: recorded_operators:Words
policy: compass
tasks:
  scan:
    children: [read]
    knobs: {keep: [1, 3]}
    variants: {scan: {operator: "recorded_operators:Scan", arguments: {keep: $keep}}}
  read:
    knobs: {upper: [false, true]}
    variants: {read: {operator: "recorded_operators:Read", arguments: {upper: $upper}}}
cluster:
  tiers: {home: {per: session}}
"""


def test_scores_bytes_and_one_run_for_each_prefix(tmp_path: Path) -> None:
    (tmp_path / "recorded_operators.py").write_text(OPERATORS)
    (tmp_path / "recorded.yaml").write_text(YAML)
    main([str(tmp_path / "recorded.yaml"), str(tmp_path / "truth.json"), "--samples", "12"])
    sessions = read_pipeline_file(tmp_path / "recorded.yaml").sessions
    assert sessions is not None
    truth = read_truth(tmp_path / "truth.json", sessions.space)
    assert [scores.mean() for scores in truth.scores] == pytest.approx([0, 1 / 3, 0, 1])
    assert [len(scores) for scores in truth.scores] == [12] * 4
    assert truth.sent[:, 1].tolist() == [1, 1, 3, 3]
    import recorded_operators

    assert len(recorded_operators.RUNS) == 12 * 2


def test_a_file_without_knobs_is_one_sentence(tmp_path: Path) -> None:
    plain = YAML.replace("  tiers: {home: {per: session}}", "  devices: {cpu: 2}")
    plain = plain.replace("    knobs: {keep: [1, 3]}\n", "").replace("$keep", "1")
    plain = plain.replace("    knobs: {upper: [false, true]}\n", "").replace("$upper", "true")
    (tmp_path / "plain.yaml").write_text(plain.replace("policy: compass\n", ""))
    with pytest.raises(SystemExit, match="the cluster has no tiers"):
        main([str(tmp_path / "plain.yaml"), str(tmp_path / "truth.json")])
