"""A pipeline's objects for Kubernetes."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.gateway import gateway
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.errors import PipelineError
from headrace.kubernetes.folder import folder_files
from headrace.kubernetes.manifests import LEAVES_S, manifest_text, manifests
from headrace.kubernetes.pods import GRACE_S, KubernetesOptions
from headrace.roles.workers.worker_role import LEAVE_S
from streams.kafka.transport import HAND_OVER_S
from streams.topics import topics
from tests.typed_files import RANK, a_typed_file

ROOT = Path(__file__).parents[4]
WORDS = ROOT / "examples" / "words" / "pipeline.yaml"
OPTIONS = KubernetesOptions(image="headrace:1", worker_image="headrace:1-torch", bootstrap="k:9092")


def a_file(tmp_path: Path, **cluster: Any) -> PipelineFile:
    row = yaml.safe_load(WORDS.read_text())
    row["cluster"] |= cluster
    (tmp_path / "words.py").write_text((WORDS.parent / "words.py").read_text())
    path = tmp_path / "pipeline.yaml"
    path.write_text(yaml.safe_dump(row))
    return read_pipeline_file(path)


def made(file: PipelineFile, options: KubernetesOptions = OPTIONS) -> list[dict[str, Any]]:
    return manifests(file, {} if options.claim else folder_files(file), options)


def named(objects: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {o["metadata"]["name"]: o["spec"] for o in objects if o["kind"] == kind}


def container(spec: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = spec["template"]["spec"]["containers"][0]
    return found


def test_every_process_has_its_workload(tmp_path: Path) -> None:
    objects = made(a_file(tmp_path, ingress=2, devices={"cpu": 3}))
    deployments = named(objects, "Deployment")
    assert {name: container(spec)["args"] for name, spec in deployments.items()} == {
        "words-control": ["control", "/opt/pipeline/pipeline.yaml"],
        "words-egress-0": ["egress", "/opt/pipeline/pipeline.yaml", "--share", "0/1"],
        "words-ingress-0": ["ingress", "/opt/pipeline/pipeline.yaml", "--share", "0/2"],
        "words-ingress-1": ["ingress", "/opt/pipeline/pipeline.yaml", "--share", "1/2"],
    }
    assert {spec["strategy"]["type"] for spec in deployments.values()} == {"Recreate"}
    (workers,) = named(objects, "StatefulSet").values()
    assert workers["replicas"] == 3
    assert container(workers)["image"] == "headrace:1-torch"
    assert container(workers)["args"] == [
        "worker", "/opt/pipeline/pipeline.yaml", "--name", "$(POD_NAME)", "--device", "cpu",
    ]  # fmt: skip


def test_a_dispatcher_of_any_task_has_a_name_that_kubernetes_takes(tmp_path: Path) -> None:
    path = a_file(tmp_path).path
    row = yaml.safe_load(path.read_text())
    row["tasks"] |= {
        "split": row["tasks"]["split"] | {"children": ["Shout_it"]},
        "Shout_it": {"dispatch": "fcfs", "variants": {"plain": {"operator": "words:Shout"}}},
    }
    del row["tasks"]["shout"]
    path.write_text(yaml.safe_dump(row))
    spec = named(made(read_pipeline_file(path)), "Deployment")["words-dispatcher-shout-it-0"]
    assert container(spec)["args"][2:] == ["--task", "Shout_it", "--share", "0/1"]


def workloads(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {**named(objects, "Deployment"), **named(objects, "StatefulSet")}


def test_a_dashboard_has_a_pod_whose_page_a_forwarded_port_reaches(tmp_path: Path) -> None:
    file = a_file(tmp_path, dashboard={"port": 0}, metrics_port=9400)
    spec = named(made(file), "Deployment")["words-dashboard"]
    assert spec["replicas"] == 1
    page = container(spec)
    assert page["args"] == ["dashboard", "/opt/pipeline/pipeline.yaml"]  # on its pod's loopback
    assert page["ports"] == [{"name": "page", "containerPort": 8080}]
    assert not [key for key in page if key.endswith("Probe")]  # which could not reach it
    assert "words-dashboard" not in workloads(made(a_file(tmp_path)))


def test_probes_ask_the_metrics_port_and_give_a_model_time_to_load(tmp_path: Path) -> None:
    objects = made(a_file(tmp_path, gateway={}))
    asked = {"path": "/livez", "port": "metrics"}
    for spec in workloads(objects).values():
        found = container(spec)
        assert {"name": "metrics", "containerPort": 9400} in found["ports"]
        assert {"name": "HEADRACE_METRICS_PORT", "value": "9400"} in found["env"]
        assert found["startupProbe"] == {
            "httpGet": asked, "periodSeconds": 5, "failureThreshold": 60,
        }  # fmt: skip
        assert found["livenessProbe"] == {
            "httpGet": asked, "periodSeconds": 5, "failureThreshold": 3, "timeoutSeconds": 3,
        }  # fmt: skip
        assert found["readinessProbe"] == {
            "httpGet": {"path": "/readyz", "port": "metrics"}, "periodSeconds": 5,
            "timeoutSeconds": 3,
        }  # fmt: skip


def test_a_pod_has_longer_to_end_than_its_role_takes(tmp_path: Path) -> None:
    objects = made(a_file(tmp_path, gateway={}, dashboard={}))
    given_s = {
        spec["template"]["spec"]["terminationGracePeriodSeconds"]
        for spec in workloads(objects).values()
    }
    drained_s = next(each.default for each in gateway.params if each.name == "drain_s")
    assert given_s == {GRACE_S}
    assert HAND_OVER_S + LEAVE_S < GRACE_S
    assert LEAVES_S + float(drained_s.removesuffix("s")) < GRACE_S


def test_the_folder_is_mounted_as_it_is(tmp_path: Path) -> None:
    objects = made(a_file(tmp_path))
    (folder,) = [o for o in objects if o["kind"] == "ConfigMap"]
    assert sorted(folder["data"]) == ["pipeline.yaml", "words.py"]
    volume = container_volumes(objects)["pipeline"]
    assert volume["configMap"]["items"] == [
        {"key": "pipeline.yaml", "path": "pipeline.yaml"}, {"key": "words.py", "path": "words.py"},
    ]  # fmt: skip


def test_modules_are_found_below_a_hidden_folder_but_not_in_one(tmp_path: Path) -> None:
    """No module was in the ConfigMap of a folder below ``.worktrees``."""
    folder = tmp_path / ".worktrees" / "words"
    (folder / ".venv").mkdir(parents=True)
    (folder / ".venv" / "library.py").touch()
    assert sorted(folder_files(a_file(folder))) == ["pipeline.yaml", "words.py"]


def test_every_path_has_a_key_of_its_own_that_kubernetes_takes(tmp_path: Path) -> None:
    """Of ``a/b.py`` and ``a__b.py``, pods had one content under both names."""
    paths = ["a/b.py", "a__b.py", "größen.py", f"{'x' * 230}.py"]
    (tmp_path / "a").mkdir()
    for path in paths:
        (tmp_path / path).write_text(f"# {path}\n")
    objects = made(a_file(tmp_path))
    (folder,) = [o for o in objects if o["kind"] == "ConfigMap"]
    items = container_volumes(objects)["pipeline"]["configMap"]["items"]
    found = {each["path"]: folder["data"][each["key"]] for each in items}
    assert {path: found[path] for path in paths} == {path: f"# {path}\n" for path in paths}
    assert all(re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", key) for key in folder["data"])


def test_a_change_of_the_folder_replaces_every_pod(tmp_path: Path) -> None:
    def templates(objects: list[dict[str, Any]]) -> list[Any]:
        return [
            o["spec"]["template"] for o in objects if o["kind"] in ("Deployment", "StatefulSet")
        ]

    file = a_file(tmp_path)
    first, again = templates(made(file)), templates(made(file))
    assert first == again
    (tmp_path / "words.py").write_text((tmp_path / "words.py").read_text() + "# changed\n")
    changed = templates(made(file))
    assert all(one != other for one, other in zip(first, changed, strict=True))


def container_volumes(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    spec = named(objects, "Deployment")["words-control"]
    return {volume["name"]: volume for volume in spec["template"]["spec"]["volumes"]}


def test_a_claim_takes_the_place_of_the_config_map(tmp_path: Path) -> None:
    objects = made(a_file(tmp_path), replace(OPTIONS, claim="models"))
    assert not [o for o in objects if o["kind"] == "ConfigMap"]
    volume = container_volumes(objects)["pipeline"]
    assert volume["persistentVolumeClaim"] == {"claimName": "models"}


def test_a_gpu_is_asked_for_and_its_taint_tolerated(tmp_path: Path) -> None:
    file = a_file(tmp_path, devices={"cuda:0": 2})
    (workers,) = named(made(file), "StatefulSet").values()
    assert container(workers)["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    tolerated = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    assert workers["template"]["spec"]["tolerations"] == tolerated


def test_a_second_gpu_of_one_machine_cannot_be_a_pods(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="sees its only GPU as cuda:0"):
        made(a_file(tmp_path, devices={"cuda:0": 1, "cuda:1": 1}))


def test_a_device_of_a_tier_is_a_pod_with_all_tasks_of_the_tier() -> None:
    """Each task of a tier had pods of its own, so that no device served a session's tasks."""
    file = read_pipeline_file(ROOT / "examples" / "postcode" / "sessions.yaml")
    sets = named(made(file, replace(OPTIONS, claim="postcode")), "StatefulSet")
    assert {name: spec["replicas"] for name, spec in sets.items()} == {
        "postcode-sessions-worker-handheld": 6, "postcode-sessions-worker-depot": 2,
        "postcode-sessions-worker-cloud": 1,
    }  # fmt: skip
    for name, spec in sets.items():
        assert container(spec)["args"][2:] == [
            "--name", "$(POD_NAME)", "--device", name.removeprefix("postcode-sessions-worker-"),
        ]  # fmt: skip


def test_roles_that_import_a_users_libraries_have_the_image_of_workers() -> None:
    """With the image of the other roles, without torch and Pillow, a profiler could load no
    operator, and the scorer not the module of its function."""
    file = read_pipeline_file(ROOT / "examples" / "postcode" / "sessions.yaml")
    sets = workloads(made(file, replace(OPTIONS, claim="postcode")))
    images = {name.removeprefix("postcode-sessions-"): container(spec)["image"]
              for name, spec in sets.items()}  # fmt: skip
    others = dict.fromkeys(("control", "egress-0", "ingress-0"), OPTIONS.image)
    importing = ("profiler-0", "scorer", "worker-cloud", "worker-depot", "worker-handheld")
    assert images == others | dict.fromkeys(importing, OPTIONS.worker_image)
    profiler = container(sets["postcode-sessions-profiler-0"])
    assert profiler["resources"] == {"requests": {"cpu": "1", "memory": "1Gi"}}


def test_a_gateway_has_a_service_and_a_budget(tmp_path: Path) -> None:
    objects = made(a_file(tmp_path, gateway={"processes": 2}, metrics_port=9400))
    assert named(objects, "Deployment")["words-gateway"]["replicas"] == 2
    assert [port["port"] for port in named(objects, "Service")["words-gateway"]["ports"]] == [
        8000, 8001,
    ]  # fmt: skip
    gateway = container(named(objects, "Deployment")["words-gateway"])
    assert gateway["lifecycle"] == {"preStop": {"sleep": {"seconds": 5}}}
    budgets = named(objects, "PodDisruptionBudget")
    assert sorted(budgets) == ["words-egress", "words-gateway", "words-ingress"]


def test_strimzi_gets_every_topic_and_the_rights_of_acls(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    objects = made(file, replace(OPTIONS, strimzi="main"))
    found = {spec["topicName"]: spec for spec in named(objects, "KafkaTopic").values()}
    assert {name: spec["partitions"] for name, spec in found.items()} == {
        topic.name: topic.partitions for topic in topics(file.pipeline)
    }
    gateway = named(objects, "KafkaUser")["words-gateway"]["authorization"]["acls"]
    assert gateway == [
        {"resource": {"type": "topic", "name": name, "patternType": "literal"},
         "operations": [operation]}
        for name, operation in (
            ("words.queries", "Write"), ("words.results", "Read"), ("headrace.plans", "Read"),
        )
    ]  # fmt: skip
    env = container(named(objects, "Deployment")["words-ingress-0"])["env"]
    assert {"name": "KAFKA_USER", "value": "words-ingress"} in env


def test_every_selector_chooses_its_own_pods_alone(tmp_path: Path) -> None:
    objects = made(a_file(tmp_path, ingress=2, gateway={}, devices={"cpu": 1, "cuda:0": 2}))
    workloads = [o for o in objects if o["kind"] in ("Deployment", "StatefulSet")]
    for one in workloads:
        chosen = one["spec"]["selector"]["matchLabels"].items()
        matching = [
            o["metadata"]["name"] for o in workloads
            if chosen <= o["spec"]["template"]["metadata"]["labels"].items()
        ]  # fmt: skip
        assert matching == [one["metadata"]["name"]]


def renamed(tmp_path: Path, name: str = "words", **tasks: str) -> PipelineFile:
    """Return the words pipeline with the name, and other names for its tasks."""
    path = a_file(tmp_path, devices={"cpu": 1, "cuda:0": 1}).path
    row = yaml.safe_load(path.read_text())
    row["tasks"] = {tasks.get(task, task): section for task, section in row["tasks"].items()}
    row["tasks"][tasks.get("split", "split")]["children"] = [tasks.get("shout", "shout")]
    path.write_text(yaml.safe_dump({**row, "name": name}))
    return read_pipeline_file(path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("w" * 40, r"StatefulSet w+-worker-cuda-0 has 54 characters, above the 52"),
        ("3d", "begin it with a letter"),
        ("words-", "end it with a letter or digit"),
    ],
)
def test_a_name_that_kubernetes_refuses_is_reported(
    tmp_path: Path, name: str, message: str
) -> None:
    """Of a StatefulSet with 54 characters no pod starts: its hash makes a label of 65."""
    with pytest.raises(PipelineError, match=message):
        made(renamed(tmp_path, name))


def test_two_objects_of_one_name_are_reported(tmp_path: Path) -> None:
    """Of ``kubectl apply``, the second one replaced the first."""
    strimzi = replace(OPTIONS, strimzi="main")
    with pytest.raises(PipelineError, match=r"2 objects would be the KafkaTopic words\.work\.a-b;"):
        made(renamed(tmp_path, split="A-b", shout="a_b"), strimzi)
    with pytest.raises(PipelineError, match=r"no KafkaTopic with the name words\.work\.split-,"):
        made(renamed(tmp_path, split="split_"), strimzi)


@pytest.mark.parametrize("line", ["# a comment\n", "-> & <\n"])
def test_a_folder_that_kubectl_cannot_apply_is_reported(tmp_path: Path, line: str) -> None:
    """The manifests of a folder of 1 MB were printed, and `kubectl apply` refused the ConfigMap."""
    file = a_file(tmp_path)
    (tmp_path / "large.py").write_text(line * 20_000)
    with pytest.raises(PipelineError, match=r"take \d+ kB of a ConfigMap.*--claim"):
        folder_files(file)


texts = st.text(st.characters(codec="utf-8"), max_size=40)


@given(st.dictionaries(texts, texts | st.lists(texts, max_size=3), max_size=4))
def test_yaml_reads_back_as_it_was(row: dict[str, Any]) -> None:
    assert list(yaml.safe_load_all(manifest_text([row, row]))) == [row, row]


def test_keda_scales_each_type_as_the_control_app_wants(tmp_path: Path) -> None:
    text = RANK.replace("budget: 1.2", "budget: 1.2\n  scale: supervisor\n  start: {slow: 1}")
    file = read_pipeline_file(a_typed_file(tmp_path, text))
    objects = made(file, replace(OPTIONS, keda="http://prometheus:9090"))
    scaled, sets = named(objects, "ScaledObject"), named(objects, "StatefulSet")
    assert {name: spec["scaleTargetRef"]["name"] for name, spec in scaled.items()} == {
        "rank-worker-gpu": "rank-worker-gpu", "rank-worker-slow": "rank-worker-slow",
    }  # fmt: skip
    assert {name: spec["maxReplicaCount"] for name, spec in scaled.items()} == {
        "rank-worker-gpu": 2, "rank-worker-slow": 6,
    }  # fmt: skip
    assert [name for name, spec in sets.items() if "replicas" in spec] == []
    trigger = scaled["rank-worker-gpu"]["triggers"][0]["metadata"]
    assert trigger["query"] == 'max(headrace_workers_wanted{pipeline="rank",type="gpu"})'
    assert trigger["serverAddress"] == "http://prometheus:9090"


def counts(objects: list[dict[str, Any]]) -> dict[str, int | None]:
    return {name: spec.get("replicas") for name, spec in workloads(objects).items()}


def test_the_file_gives_the_numbers_of_workers_and_gateways_unless_they_are_kept(
    tmp_path: Path,
) -> None:
    file = a_file(tmp_path, ingress=2, devices={"cpu": 3}, gateway={"processes": 2}, dashboard={})
    fixed = {
        "words-control": 1, "words-egress-0": 1, "words-ingress-0": 1, "words-ingress-1": 1,
        "words-dashboard": 1,
    }  # fmt: skip
    assert counts(made(file)) == {**fixed, "words-worker-cpu": 3, "words-gateway": 2}
    kept = counts(made(file, replace(OPTIONS, keep_replicas=True)))
    assert kept == {**fixed, "words-worker-cpu": None, "words-gateway": None}


def test_beside_keda_the_file_gives_the_numbers_of_devices_that_are_not_rented(
    tmp_path: Path,
) -> None:
    text = RANK.replace("budget: 1.2", "budget: 1.2\n  scale: supervisor\n  start: {slow: 1}")
    file = read_pipeline_file(a_typed_file(tmp_path, text))
    devices = (("cpu", 2), *file.cluster.devices)
    mixed = replace(file, cluster=replace(file.cluster, devices=devices))
    found = counts(made(mixed, replace(OPTIONS, keda="http://prometheus:9090")))
    workers = {name: count for name, count in found.items() if "-worker-" in name}
    assert workers == {"rank-worker-cpu": 2, "rank-worker-slow": None, "rank-worker-gpu": None}
    assert counts(made(file))["rank-worker-slow"] == 1


def test_keda_without_scale_supervisor_is_refused(tmp_path: Path) -> None:
    file = read_pipeline_file(a_typed_file(tmp_path))
    with pytest.raises(PipelineError, match="scale: supervisor"):
        made(file, replace(OPTIONS, keda="http://prometheus:9090"))


def test_every_stateful_set_has_the_service_that_it_names(tmp_path: Path) -> None:
    objects = made(a_file(tmp_path, devices={"cpu": 2, "cuda:0": 1}))
    services = named(objects, "Service")
    sets = named(objects, "StatefulSet")
    assert len(sets) == 2
    for spec in sets.values():
        service = services[spec["serviceName"]]
        assert service["clusterIP"] == "None"
        assert service["selector"] == spec["selector"]["matchLabels"]
        assert service["selector"].items() <= spec["template"]["metadata"]["labels"].items()


def test_a_gateway_has_its_secrets_as_files(tmp_path: Path) -> None:
    file = a_file(tmp_path, gateway={"processes": 1})
    options = replace(OPTIONS, gateway_tokens="callers", gateway_tls="front")
    spec = named(made(file, options), "Deployment")["words-gateway"]
    gateway = container(spec)
    assert gateway["args"][-6:] == [
        "--tokens", "/etc/headrace-gateway/tokens/tokens",
        "--tls-certificate", "/etc/headrace-gateway/tls/tls.crt",
        "--tls-key", "/etc/headrace-gateway/tls/tls.key",
    ]  # fmt: skip
    volumes = {each["name"]: each for each in spec["template"]["spec"]["volumes"]}
    mounts = {each["name"]: each["mountPath"] for each in gateway["volumeMounts"]}
    for name, secret in (("tokens", "callers"), ("tls", "front")):
        assert volumes[name] == {"name": name, "secret": {"secretName": secret}}
        assert mounts[name] == f"/etc/headrace-gateway/{name}"
    plain = container(named(made(file), "Deployment")["words-gateway"])
    assert "--tokens" not in plain["args"]


def test_secrets_without_a_gateway_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="the secret 'callers' is for a gateway, and the file"):
        made(a_file(tmp_path), replace(OPTIONS, gateway_tokens="callers"))
