"""headrace/demo/demo_run.py: output of a demo once its pipeline is up."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.cluster.local_run import LocalRun
from headrace.cluster.up import up_row, up_text
from headrace.config.cluster import Gateways
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.demo.demo_run import DemoOptions
from streams.kafka.kafka_config import KafkaConfig
from tests.builders import a_plan

ROOT = Path(__file__).parents[4]


def words(port: int | None) -> PipelineFile:
    file = read_pipeline_file(ROOT / "examples" / "words" / "pipeline.yaml")
    return replace(file, cluster=replace(file.cluster, dashboard_port=port))


def said(file: PipelineFile, folder: Path, *, as_json: bool = False) -> str:
    """Return the ready message of a demo of the file, without starting the demo."""
    options = DemoOptions(
        file=file, bootstrap=None, seconds=6.0, rate_qps=None, seed=0, as_json=as_json
    )
    run = LocalRun(options.shown(), KafkaConfig("127.0.0.1:1"), folder)
    return up_text(up_row(run, a_plan(), 1.0))


@pytest.mark.parametrize(("port", "shown"), [(None, r"\d+"), (8123, "8123")])
def test_a_demo_prints_the_address_of_its_dashboard(
    tmp_path: Path, port: int | None, shown: str
) -> None:
    address = rf"^dashboard at http://127\.0\.0\.1:{shown}/\?token=[\w-]{{20,}}$"
    assert re.search(address, said(words(port), tmp_path), re.MULTILINE)


@pytest.mark.parametrize(("grpc_port", "grpc"), [(8001, ", 127.0.0.1:8001"), (None, "")])
def test_up_prints_the_addresses_of_its_gateways(
    tmp_path: Path, grpc_port: int | None, grpc: str
) -> None:
    """It named the dashboard only."""
    file, gateways = words(None), Gateways(http_port=8000, grpc_port=grpc_port)
    text = said(replace(file, cluster=replace(file.cluster, gateway=gateways)), tmp_path)
    assert f"\ngateway at http://127.0.0.1:8000/v2{grpc}\n" in text + "\n"


def test_a_demo_for_programs_has_no_dashboard_of_its_own(tmp_path: Path) -> None:
    assert "dashboard" not in said(words(None), tmp_path, as_json=True)
