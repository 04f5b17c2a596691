"""An API server of Kubernetes admits the manifests, and the commands of docs/how-to/deploy.md do
what the page says; `make interop` builds the server."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.kubernetes.folder import MOST_BYTES
from tests.interop.kubernetes_server import ApiServer, api_server

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
KINDS = "deployments,statefulsets,services,poddisruptionbudgets"

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with api_server(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def cluster(server: ApiServer) -> Iterator[ApiServer]:
    """Return the server without the objects of other tests."""
    yield server
    server.shell(f"kubectl delete {KINDS} --selector app.kubernetes.io/name=headrace")


def command(name: str) -> str:
    """Return a command of the page for the pipeline ``words``."""
    (block,) = re.findall(rf"<!-- command: {name} -->\n```bash\n(.*?)```", PAGE, re.DOTALL)
    return str(block).replace("NAME", "words")


def printed(folder: Path, *options: str, name: str = "words", **cluster: Any) -> str:
    """Return the output of `headrace kubernetes` for a pipeline with this cluster section."""
    row = yaml.safe_load((ROOT / "examples/words/pipeline.yaml").read_text())
    tasks = row["tasks"]
    tasks["split"]["children"] = ["Shout_it"]
    tasks["Shout_it"] = {"dispatch": "fcfs", "operator": "words:Shout"}
    del tasks["shout"]
    (folder / "words.py").write_text((ROOT / "examples/words/words.py").read_text())
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump({**row, "name": name, "cluster": cluster}))
    made = [sys.executable, "-m", "headrace", "kubernetes", str(file), *options]
    return subprocess.run(made, check=True, capture_output=True, text=True, cwd=ROOT).stdout


LARGE: dict[str, Any] = {
    "devices": {"cpu": 3, "cuda:0": 1}, "ingress": 2, "egress": 2, "dispatchers": 2,
    "gateway": {"processes": 2}, "dashboard": {},
}  # fmt: skip
SMALL: dict[str, Any] = {"devices": {"cpu": 3}}


def kept(cluster: ApiServer) -> dict[str, int | None]:
    """Return the objects on the server as KIND/NAME, with their numbers of pods."""
    found = json.loads(
        cluster.shell(f"kubectl get {KINDS} -l app.kubernetes.io/name=headrace -o json")
    )["items"]
    return {
        f"{each['kind']}/{each['metadata']['name']}": each["spec"].get("replicas")
        for each in found
    }  # fmt: skip


def listed(manifest: str) -> set[str]:
    objects = [o for o in yaml.safe_load_all(manifest) if o["kind"] != "ConfigMap"]
    return {f"{each['kind']}/{each['metadata']['name']}" for each in objects}


def test_every_object_is_admitted(cluster: ApiServer, tmp_path: Path) -> None:
    manifest = printed(tmp_path, "--gateway-tokens", "callers", "--gateway-tls", "front", **LARGE)
    cluster.apply(manifest)
    assert kept(cluster).keys() == listed(manifest)


@pytest.mark.parametrize("line", ["# a comment\n", "-> & <\n"])
def test_the_largest_folder_is_admitted(cluster: ApiServer, tmp_path: Path, line: str) -> None:
    in_json = 5 * sum(map(line.count, "<>&")) + len(line) + 1  # bytes of a line
    (tmp_path / "large.py").write_text(line * int((MOST_BYTES - 5000) / in_json))
    cluster.apply(printed(tmp_path, **SMALL))


WORKERS, GATEWAY = "StatefulSet/words-worker-cpu", "Deployment/words-gateway"


def test_apply_sets_the_numbers_of_the_file(cluster: ApiServer, tmp_path: Path) -> None:
    manifest = printed(tmp_path, **LARGE)
    cluster.apply(manifest)
    cluster.shell("kubectl scale statefulset words-worker-cpu --replicas=6")
    cluster.apply(manifest)
    assert kept(cluster)[WORKERS] == 3


def test_apply_keeps_numbers_that_the_manifest_leaves_out(
    cluster: ApiServer, tmp_path: Path
) -> None:
    manifest = printed(tmp_path, "--keep-replicas", **LARGE)
    cluster.apply(manifest)
    assert (kept(cluster)[WORKERS], kept(cluster)[GATEWAY]) == (1, 1)
    cluster.shell("kubectl scale statefulset/words-worker-cpu deploy/words-gateway --replicas=6")
    cluster.apply(printed(tmp_path, "--keep-replicas", "--image", "headrace:2", **LARGE))
    assert (kept(cluster)[WORKERS], kept(cluster)[GATEWAY]) == (6, 6)


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_number_that_was_applied_before_becomes_1_unless_it_is_forgotten_first(
    cluster: ApiServer, tmp_path: Path, *, forgotten: bool
) -> None:
    cluster.apply(printed(tmp_path, **LARGE))
    if forgotten:
        cluster.shell(command("forget replicas"))
    cluster.apply(printed(tmp_path, "--keep-replicas", **LARGE))
    assert kept(cluster)[WORKERS] == (3 if forgotten else 1)


def test_pruning_removes_what_the_file_no_longer_has_and_nothing_else(
    cluster: ApiServer, tmp_path: Path
) -> None:
    other, large, small = (
        printed(tmp_path, name="other", **LARGE), printed(tmp_path, **LARGE),
        printed(tmp_path, **SMALL),
    )  # fmt: skip
    cluster.apply(other)
    cluster.apply(large)
    cluster.apply(small)
    assert kept(cluster).keys() == listed(other) | listed(large)
    (cluster.folder / "pipeline.k8s.yaml").write_text(small)
    cluster.shell(command("prune"))
    assert kept(cluster).keys() == listed(other) | listed(small)
