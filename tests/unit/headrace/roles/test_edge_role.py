"""Unsupported ingress locations at the edge: one sentence each, before any broker is contacted."""

from pathlib import Path

import pytest

from headrace.cli.main import run
from tests.unit.headrace.config.test_session_space import YAML

CAM = ["--tier", "handheld", "--session", "cam-17"]
PLAIN = """\
name: plain
slo: 300ms
tasks: {scan: {variants: {scan: {operator: "shop:Scan"}}}}
cluster: {devices: {cpu: 1}}
"""
HIDDEN = YAML.replace(
    "    children: [read]\n    tiers: [handheld]", "    children: [read]\n    tiers: [depot]"
)


@pytest.mark.parametrize(
    ("text", "arguments", "sentence"),
    [
        (YAML, ["--tier", "phone", "--session", "a"], "no such tier; the file has: handheld"),
        (YAML, ["--tier", "depot", "--session", "a"], "the first task 'scan' may not run on it"),
        (YAML, ["--tier", "handheld"], "give --tier and --session together"),
        (YAML, ["--session", "cam-17"], "give --tier and --session together"),
        (YAML, ["--tier", "handheld", "--session", "a/b"], "'a/b' is no id of a session"),
        (YAML, [*CAM, "--input", "edge:9092"], "--input needs the number of its site"),
        (YAML, [*CAM, "--site", "3"], "add --input HOST:PORT"),
        (PLAIN, CAM, "the cluster has no tiers"),
        (YAML.replace("    tiers: [handheld]\n", ""), ["--tier", "depot", "--session", "a"],
         "name a tier with `per: session`"),
        (HIDDEN.replace("  read:\n    knobs", "  read:\n    tiers: [depot, cloud]\n    knobs"), CAM,
         "no task may run on it"),
    ],
)  # fmt: skip
def test_unsupported_ingress_at_the_edge_is_refused_with_a_reason(
    text: str, arguments: list[str], sentence: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = tmp_path / "planned.yaml"
    path.write_text(text)
    assert run(["ingress", str(path), "--bootstrap", "localhost:1", *arguments]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert len(said.strip().splitlines()) == 1
