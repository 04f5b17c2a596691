"""``headrace profile``: its plan, output and measurements; these use a plain Python operator."""

import json
import re
import sys
from pathlib import Path

import pytest

from headrace.config.cluster import Cluster, DeviceType
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.config.profile_files import load_profile
from headrace.errors import PipelineError
from headrace.profiling.device_check import check_devices, check_memory_known
from headrace.profiling.device_profiling import (
    ProfilingOptions,
    companions,
    cuda_indices,
    default_out,
    jobs,
    profile,
    real_devices,
)
from headrace.profiling.profile_text import profile_summary
from headrace.profiling.variant_process import measured_entry, runner
from profiles.measure import Repeats
from profiles.measurements import FanOut, ProfileError

PIPELINE = """\
name: words
slo: 1s
tasks:
  split:
    children: [shout]
    variants:
      plain: {operator: "MODULE:Split", arguments: {weights: weights.txt}, batch: 2}
  shout:
    variants:
      plain: {operator: "MODULE:SHOUT", batch: 3}
policies:
  wide: {batch: {shout/plain: 6}}
cluster: {devices: {cpu: 2, emulated: 1}}
profiles: [profile-cpu.json]
workload: MODULE:Words
"""
MODULE = """\
class Split:
    def __init__(self, weights): ...
    def load(self, device): ...
    def predict(self, batch): return [text.split() for text in batch]

class Shout:
    def load(self, device): ...
    def predict(self, batch): return [word.upper() for word in batch]

class Short(Shout):
    def predict(self, batch): return []

class Bare(Shout):
    def predict(self, batch): return dict.fromkeys(map(str, range(len(batch))))

class Refusing(Shout):
    def predict(self, batch): return [ValueError("too loud") for _ in batch]

class Dying(Shout):
    def load(self, device):
        import os
        os._exit(7)

class Elsewhere(Shout):
    def load(self, device):
        from operators.models.model_errors import BadDevice
        raise BadDevice(f"it runs on abacuses only, not on {device!r}")

class Fading(Shout):  # the first process ends under load, and the measured one waits for that
    alone = 0
    def load(self, device):
        import os, pathlib
        self.place = pathlib.Path(f"{__file__}.first")
        self.first = not self.place.exists()
        if self.first:
            self.place.write_text(str(os.getpid()))
    def predict(self, batch):
        import os, psutil
        self.alone += len(batch) == 1
        if self.first and self.alone == 2:
            os._exit(9)
        first = psutil.Process(int(self.place.read_text()))
        while not self.first and len(batch) == 1 and not self.ended(first):
            pass
        return super().predict(batch)
    def ended(self, process):
        import os, psutil
        threads = os.listdir(f"/proc/{process.pid}/task")  # they may outlast the first one
        return process.status() == psutil.STATUS_ZOMBIE and len(threads) == 1

class OnGpu(Shout):  # the first batch takes memory, and torch's allocator knows of a part of it
    taken = 0
    def load(self, device):
        import torch
        torch.cuda.free -= 1000
    def predict(self, batch):
        import torch
        torch.cuda.free -= 0 if self.taken else 200
        self.taken = 200
        return super().predict(batch)

class Large(Shout):  # as a model above half of its device
    held = []
    def load(self, device):
        import weakref
        assert not any(each() for each in self.held), "out of memory"
        self.held.append(weakref.ref(self))
        self.itself = self  # garbage in a cycle

class Words:
    def queries(self, rng): yield b"a b", None
    def score(self, result, truth): return 0, 1
    def task_inputs(self, task, n, rng):
        texts = ["a b", "a b c"] if task == "split" else ["a", "1"]
        return [texts[i % 2] for i in range(n)], [i % 2 for i in range(n)]
    def task_score(self, task, output, truth): return float(task == "split" or truth == 0)
"""
TORCH = """\
class cuda:
    free = 9000
    def mem_get_info(device): return cuda.free, 10000
    def max_memory_reserved(device): return RESERVED
"""
SIZED = """
    def sized_inputs(self, task, size, rng):
        return ["a" * size] if task == "shout" else []
"""
QUICK = ProfilingOptions(
    repeats=Repeats(least=3, most=5, budget_s=0.0), samples=10, busy=1, batches=(1, 2)
)


@pytest.fixture(autouse=True)
def _same_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def words(folder: Path, module: str, shout: str = "Shout") -> PipelineFile:
    """Return the pipeline with its operators in a module that no other test imports."""
    (folder / "weights.txt").write_text("none")
    (folder / f"{module}.py").write_text(MODULE)
    path = folder / "pipeline.yaml"
    path.write_text(PIPELINE.replace("SHOUT", shout).replace("MODULE", module))
    return read_pipeline_file(path)


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the steps that were shown, without the time left."""
    lines = capsys.readouterr().err.splitlines()
    return [re.sub(r"profiling: |, about \d+ s left", "", line) for line in lines]


@pytest.mark.thorough
def test_a_pipeline_is_profiled_from_end_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = words(tmp_path, "words_whole")
    out = tmp_path / "profile-cpu.json"
    table = profile(file, ["cpu"], out, QUICK)
    assert load_profile(file) == table
    assert [(e.name, e.accuracy, dict(e.children)) for e in table.entries] == [
        ("split/plain on cpu", 1.0, {"shout": FanOut(2.5, {2: 0.5, 3: 0.5})}),
        ("shout/plain on cpu", 0.5, {}),
    ]
    assert [row.batch for entry in table.entries for row in entry.latency] == [1, 2, 1, 2]
    assert shown(capsys) == [
        "0 of 6, split/plain on cpu, load and accuracy",
        "1 of 6, split/plain on cpu, batch 1",
        "2 of 6, split/plain on cpu, batch 2",
        "3 of 6, shout/plain on cpu, load and accuracy",
        "4 of 6, shout/plain on cpu, batch 1",
        "5 of 6, shout/plain on cpu, batch 2",
        "6 of 6, done",
    ]
    provenance = json.loads(out.read_text())["provenance"]
    assert set(provenance) >= {
        "machine", "cpu", "cores", "python", "versions", "date", "repeats", "busy_devices", "note"
    }  # fmt: skip
    assert provenance["busy_devices"] == {"cpu": ["cpu"]}
    assert set(provenance["load_average"]) == {"before", "after"}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("shout", "message"),
    [
        ("Short", r"profiling shout/plain on cpu: predict returned 0 outputs for . inputs"),
        ("Bare", "profiling shout/plain on cpu: predict returned dict; return a list of outputs"),
        ("Refusing", "profiling shout/plain on cpu: the operator refused a sample .*: too loud"),
        ("Dying", "profiling shout/plain on cpu: the process ended with code 7; its own words"),
        ("Nobody", r"profiling shout/plain on cpu: .*Nobody"),
    ],
)
def test_an_operator_that_fails_is_reported_in_one_sentence(
    tmp_path: Path, shout: str, message: str
) -> None:
    file = words(tmp_path, f"words_{shout.lower()}", shout)
    alone = ProfilingOptions(repeats=QUICK.repeats, samples=10, busy=0, batches=(1,))
    out = tmp_path / "profile-cpu.json"
    with pytest.raises(PipelineError, match=message):
        profile(file, ["cpu"], out, alone)
    assert not out.exists()


@pytest.mark.thorough
def test_a_measurement_whose_load_did_not_last_is_refused(tmp_path: Path) -> None:
    """Latencies of a model alone on the machine are too good."""
    file = words(tmp_path, "words_fading", "Fading")
    out = tmp_path / "profile-cpu.json"
    with pytest.raises(PipelineError, match="shout/plain on cpu: the process ended with code 9"):
        profile(file, ["cpu"], out, QUICK)
    assert not out.exists()


@pytest.mark.thorough
@pytest.mark.parametrize(("reserved", "memory_bytes"), [(1500, 1500), (0, 1200)])
def test_memory_of_a_gpu_is_that_of_one_load(
    tmp_path: Path, reserved: int, memory_bytes: int
) -> None:
    """The time of a load is that of a second one. Torch reserves nothing for ONNX models."""
    file = words(tmp_path, "words_gpu", "OnGpu")
    (tmp_path / "torch.py").write_text(TORCH.replace("RESERVED", str(reserved)))
    _, shout = jobs(file, ["cuda:0"], QUICK)
    assert measured_entry(shout, (), lambda what: None).memory_bytes == memory_bytes


def test_a_limit_of_a_gpu_needs_torch_to_measure() -> None:
    limited = Cluster((("cpu", 1), ("cuda:0", 1), ("cuda:1", 1)), memory=(("cuda:0", 8),))
    with pytest.raises(PipelineError, match="memory of 'cuda:0' is limited, but without torch"):
        check_memory_known(limited, ["cpu", "cuda:1", "cuda:0"], torch=False)
    check_memory_known(limited, ["cuda:0"], torch=True)
    check_memory_known(limited, ["cpu", "cuda:1"], torch=False)


@pytest.mark.thorough
def test_a_model_that_fits_its_device_once_is_measured(tmp_path: Path) -> None:
    file = words(tmp_path, "words_large", "Large")
    _, shout = jobs(file, ["cpu"], QUICK)
    assert measured_entry(shout, (), lambda what: None).accuracy == 0.5


@pytest.mark.thorough
def test_a_variant_that_does_not_run_on_the_device_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = words(tmp_path, "words_elsewhere", "Elsewhere")
    table = profile(file, ["cpu"], tmp_path / "profile-cpu.json", QUICK)
    assert [entry.name for entry in table.entries] == ["split/plain on cpu"]
    assert table.left_out == {
        "shout/plain on cpu": "it runs on abacuses only, not on 'cpu'",
    }
    assert "shout/plain on cpu: skipped: it runs on abacuses only" in profile_summary(table)
    assert shown(capsys)[-1] == "6 of 6, done"


@pytest.mark.thorough
def test_a_device_on_which_nothing_runs_has_no_profile(tmp_path: Path) -> None:
    file = words(tmp_path, "words_nowhere", "Elsewhere")
    file.path.write_text(
        file.path.read_text()
        .replace("words_nowhere:Split", "words_nowhere:Elsewhere")
        .replace("arguments: {weights: weights.txt}, batch: 2", "batch: 2")
    )
    out = tmp_path / "profile-cpu.json"
    with pytest.raises(PipelineError, match="no variant runs on cpu: it runs on abacuses only"):
        profile(read_pipeline_file(file.path), ["cpu"], out, QUICK)
    assert not out.exists()


def test_batches_go_up_to_the_largest_that_the_file_uses(tmp_path: Path) -> None:
    file = words(tmp_path, "words_batches")
    assert [(job.name, job.batches) for job in jobs(file, ["cpu"], ProfilingOptions())] == [
        ("split/plain on cpu", (1, 2)),
        ("shout/plain on cpu", (1, 2, 4, 6)),
    ]


def test_batches_can_be_named(tmp_path: Path) -> None:
    planned = jobs(words(tmp_path, "words_named"), ["cpu"], ProfilingOptions(batches=(1, 16)))
    assert [job.batches for job in planned] == [(1, 16), (1, 16)]


CLUSTER = Cluster((("cpu", 4), ("cuda:0", 1), ("cuda:1", 2)))


@pytest.mark.parametrize(
    ("device", "devices", "cpus", "busy", "beside"),
    [
        ("cpu", ["cpu"], 16, None, ["cpu"] * 3),
        ("cpu", ["cpu"], 2, None, ["cpu"] * 2),
        ("cuda:0", ["cuda:0"], 16, None, []),
        ("cuda:1", ["cuda:0", "cuda:1"], 16, None, ["cuda:1", "cuda:0"]),
        ("cuda:7", ["cuda:7"], 16, None, []),
        ("cpu", ["cpu"], 2, 0, []),
        ("cpu", ["cpu"], 2, 5, ["cpu"] * 5),
    ],
)
def test_every_other_worker_is_busy_beside_the_measured_one(
    device: str, devices: list[str], cpus: int, busy: int | None, beside: list[str]
) -> None:
    assert companions(device, devices, CLUSTER, cpus, busy) == beside


def test_a_type_on_a_gpu_is_that_gpu() -> None:
    types = (DeviceType(name="big", device="cuda:1"), DeviceType(name="core", device="cpu"))
    cluster = Cluster((("cuda:0", 1),), types=types)
    assert cuda_indices(cluster, ["cuda:0", "big", "core", "cpu"]) == {"cuda:0": 0, "big": 1}


def test_the_devices_are_the_clusters_unless_named() -> None:
    assert real_devices(CLUSTER, []) == ("cpu", "cuda:0", "cuda:1")
    assert real_devices(CLUSTER, ["cpu", "cpu"]) == ("cpu",)


def test_emulated_devices_cannot_be_profiled() -> None:
    with pytest.raises(PipelineError, match="cannot be profiled; name a real one, as in --device"):
        real_devices(CLUSTER, ["emulated"])
    with pytest.raises(PipelineError, match="emulated devices only; name a real one"):
        real_devices(Cluster((("emulated", 20),)), [])


def test_the_profile_is_named_after_the_kind_of_device(tmp_path: Path) -> None:
    file = words(tmp_path, "words_out")
    assert default_out(file, ["cuda:0", "cuda:1"]) == tmp_path / "profile-cuda.json"
    assert default_out(file, []) == tmp_path / "profile-cpu.json"


def test_a_pipeline_without_workload_cannot_be_profiled(tmp_path: Path) -> None:
    path = words(tmp_path, "words_idle").path
    path.write_text(path.read_text().replace("workload: words_idle:Words\n", ""))
    with pytest.raises(PipelineError, match="no workload is named"):
        profile(read_pipeline_file(path), ["cpu"], tmp_path / "out.json")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batches": ()}, r"batches are \(\); name numbers from 1"),
        ({"batches": (0, 1)}, "name numbers from 1"),
        ({"busy": -1}, "busy is -1; it must be 0 or more"),
        ({"samples": 0}, "samples are 0; accuracy needs 1 or more"),
    ],
)
def test_settings_check_themselves(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        ProfilingOptions(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("device", "sentence"),
    [("banana", "'banana' is none"), ("cuda", "'cuda' is none"), ("cuda:1", "has 1 CUDA devices")],
)
def test_a_device_that_is_not_here_is_refused(device: str, sentence: str) -> None:
    with pytest.raises(PipelineError, match=sentence):
        check_devices(CLUSTER, ["cpu", device], cuda_devices=1)


def test_devices_that_are_here_are_taken() -> None:
    check_devices(CLUSTER, ["cpu", "cuda:0"], cuda_devices=1)


class Heard:
    """An operator that records its inputs."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def predict(self, batch: list[str]) -> list[str]:
        self.batches.append(batch)
        return batch


def test_items_of_each_size_are_run_alone_where_the_workload_makes_them(tmp_path: Path) -> None:
    sized = PIPELINE.replace(", batch: 2", "").replace(", batch: 3", "")
    sized = sized.replace("policies:\n  wide: {batch: {shout/plain: 6}}\n", "size: {most: 5}\n")
    (tmp_path / "words_sized.py").write_text(MODULE + SIZED)
    (tmp_path / "weights.txt").write_text("none")
    path = tmp_path / "pipeline.yaml"
    path.write_text(sized.replace("SHOUT", "Shout").replace("MODULE", "words_sized"))
    file = read_pipeline_file(path)
    split, shout = jobs(file, ["cpu"], ProfilingOptions(samples=4))
    assert (split.batches, shout.batches) == ((1,), (1, 2, 4, 5))
    heard = Heard()
    run = runner(shout, heard, ["x", "y"])
    for size in (4, 1):
        run(size)
    assert heard.batches == [["aaaa"], ["a"]]
