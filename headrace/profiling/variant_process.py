"""Measure one variant on one device in its own process, with companion processes as load.

Parent and children communicate over pipes; companions read the batch size to run from shared
memory. A known failure is sent as a sentence; any other ends the child with a traceback on
stderr.
"""

import contextlib
import gc
import importlib.util
import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import psutil

from headrace.config.pipeline_file import PipelineFile, make_importable, weights_sha256
from headrace.config.user_functions import load_workload, sized_inputs
from headrace.errors import PipelineError
from headrace.roles.workers.shared_cpu import PaidOperator
from operators.calls.operator_outputs import listed
from operators.calls.own_values import own_values
from operators.models.libraries import library
from operators.models.loading import load_operator
from operators.models.model_errors import BadDevice, ModelError
from profiles.measure import Repeats, accuracy, fan_outs, latency_rows
from profiles.measurements import Entry, ProfileError
from schemas.pipeline import Task, Variant

T = TypeVar("T")


class NotOnThisDevice(PipelineError):
    """The variant's operator does not run on the device; the message is the operator's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One variant on one device: batches, repeats, and the number of inputs for accuracy."""

    file: PipelineFile
    task: Task
    variant: Variant
    device: str
    batches: tuple[int, ...]
    repeats: Repeats
    samples: int
    seed: int

    @property
    def name(self) -> str:
        """Return the job's name in progress and errors."""
        return f"{self.variant.key} on {self.device}"


# Messages of the measuring processes. A message of any other type is the result and the last.
@dataclass(frozen=True, slots=True)
class _Ready:
    pass


@dataclass(frozen=True, slots=True)
class _Doing:
    what: str


@dataclass(frozen=True, slots=True)
class _Trouble:
    sentence: str
    device: bool = False  # the operator does not run on the device


def measured_entry(job: Job, beside: Sequence[str], doing: Callable[[str], None]) -> Entry:
    """Measure one job in its own process, with companions on the devices ``beside``.

    Raises ``NotOnThisDevice``, and ``PipelineError`` if the job fails in another way.
    """
    context = get_context("spawn")
    pace = context.Value("i", 0, lock=False)  # the batch size that companions run, 0 for idle
    path = job.file.path

    def name(device: str) -> str:
        return f"{job.variant.key} on {device}"

    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(_child(context, _accompany, name(device), path, job, pace, device))
            for device in beside
        ]
        for companion in started:
            _until(companion, doing)
        child = stack.enter_context(_child(context, _measure, job.name, path, job, pace))
        entry: Entry = _until(child, doing)
        for companion in started:
            if not companion.process.is_alive():  # the machine was not under load to the end
                _until(companion, doing)
        return entry


def in_a_process(
    target: Callable[..., None],
    args: tuple[Any, ...],
    path: Path,
    name: str,
    doing: Callable[[str], None],
) -> Any:
    """Return the result of ``target(*args, mouth)``, run in its own process.

    The modules beside the pipeline file ``path`` can be imported there. Raises ``PipelineError``
    naming ``name`` if the process fails.
    """
    with _child(get_context("spawn"), target, name, path, *args) as child:
        return _until(child, doing)


@dataclass(frozen=True, slots=True)
class _VariantChild:
    process: SpawnProcess
    ears: Connection
    name: str


@contextlib.contextmanager
def _child(
    context: SpawnContext, target: Callable[..., None], name: str, path: Path, *args: Any
) -> Iterator[_VariantChild]:
    ears, mouth = context.Pipe(duplex=False)
    process = context.Process(target=_guarded, args=(target, path, args, mouth), daemon=True)
    process.start()
    mouth.close()  # so that the end of the process is the end of the pipe
    try:
        yield _VariantChild(process, ears, name)
    finally:
        process.kill()
        process.join()
        ears.close()


def _until(child: _VariantChild, doing: Callable[[str], None]) -> Any:
    """Receive messages until the child is ready or has a result; return that message."""
    while True:
        try:
            said = child.ears.recv()
        except EOFError:
            child.process.join()
            raise PipelineError(
                f"profiling {child.name}: the process ended with code {child.process.exitcode}; "
                "its own words are above, correct the operator"
            ) from None
        if isinstance(said, _Trouble) and said.device:
            raise NotOnThisDevice(said.sentence)
        if isinstance(said, _Trouble):
            raise PipelineError(f"profiling {child.name}: {said.sentence}")
        if not isinstance(said, _Doing):
            return said
        doing(said.what)


def _guarded(
    target: Callable[..., None], path: Path, args: tuple[Any, ...], pipe: Connection
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles ctrl-C and kills its children
    make_importable(path)
    try:
        target(*args, Mouth(pipe))
    except BadDevice as error:
        pipe.send(_Trouble(str(error), device=True))
    except (ModelError, PipelineError, ProfileError) as error:
        pipe.send(_Trouble(str(error)))


@dataclass(frozen=True, slots=True)
class Mouth:
    """A measuring process's end of the pipe: it sends progress, then the result."""

    pipe: Connection

    def doing(self, what: str) -> None:
        """Report the step that begins."""
        self.pipe.send(_Doing(what))

    def say(self, found: Any) -> None:
        """Send the result."""
        self.pipe.send(found)


def _accompany(job: Job, pace: Any, device: str, mouth: Mouth) -> None:
    """Run the variant at the batch size in ``pace`` until killed or orphaned."""
    operator = loaded_operator(job.file, job.variant, device)
    inputs, _ = sample(job, 2 * max(job.batches))
    run = runner(job, operator, inputs)
    run(1)
    mouth.say(_Ready())
    parent = os.getppid()
    while os.getppid() == parent:
        if pace.value:
            run(pace.value)
        else:
            time.sleep(0.001)


def _measure(job: Job, pace: Any, mouth: Mouth) -> None:
    """Measure the variant and send its entry."""
    device = job.device
    mouth.doing(f"{job.name}, load and accuracy")
    host = job.file.cluster.host_device(device)
    free_bytes = gpu_free_bytes(host)
    operator, load_bytes = grown(lambda: loaded_operator(job.file, job.variant, device))
    inputs, truths = sample(job, job.samples)
    _, batch_bytes = grown(lambda: runner(job, operator, inputs)(max(job.batches)))
    memory_bytes = load_bytes + batch_bytes
    if host.startswith("cuda"):
        memory_bytes = gpu_bytes(host, free_bytes)
    del operator  # a device has room for one model above half its memory
    gc.collect()
    operator, load_s = _reloaded(job)
    outputs = predicted_outputs(operator, inputs, min(job.variant.batch, max(job.batches)))
    judge = load_workload(job.file).task_score
    scores = [judge(job.task.name, out, t) for out, t in zip(outputs, truths, strict=True)]

    def started(batch: int) -> None:
        pace.value = batch
        mouth.doing(f"{job.name}, batch {batch}")

    run = runner(job, operator, inputs)
    entry = Entry(
        task=job.task.name,
        variant=job.variant.name,
        device=device,
        operator=job.variant.operator,
        weights_sha256=weights_sha256(job.variant),
        load_s=load_s,
        memory_bytes=memory_bytes,
        accuracy=round(accuracy([float(score) for score in scores]), 6),
        children=fan_outs(outputs, job.task.children),
        latency=latency_rows(run, time.perf_counter, job.batches, job.repeats, started),
    )
    mouth.say(entry)


def grown(act: Callable[[], T]) -> tuple[T, int]:
    """Return the result of ``act`` and the bytes by which this process grew meanwhile."""
    process = psutil.Process()
    before = process.memory_info().rss
    result = act()
    return result, max(0, process.memory_info().rss - before)


def _reloaded(job: Job) -> tuple[Any, float]:
    """Return the operator of a second load in this process, and the load's seconds: the cost of a
    change of variant."""
    began = time.perf_counter()
    operator = loaded_operator(job.file, job.variant, job.device)
    return operator, round(time.perf_counter() - began, 6)


def loaded_operator(file: PipelineFile, variant: Variant, device: str) -> Any:
    """Return the variant's operator, loaded on a device or type; it keeps to the type's share."""
    operator: Any = load_operator(variant)
    operator.load(file.cluster.host_device(device))
    share = file.cluster.type_share(device)
    return PaidOperator(operator, share, time.thread_time) if share < 1.0 else operator


def sample(job: Job, count: int) -> tuple[list[Any], list[Any]]:
    """Return ``count`` inputs of the job's task and their truths, determined by the seed.

    Raises ``ProfileError`` if the workload does not return one truth for each input.
    """
    rng = np.random.default_rng(job.seed)
    inputs, truths = load_workload(job.file).task_inputs(job.task.name, count, rng)
    if not inputs or len(inputs) != len(truths):
        raise ProfileError(
            f"task_inputs gave {len(inputs)} inputs and {len(truths)} truths of task "
            f"{job.task.name!r}; it must give {count} of each"
        )
    return inputs, truths


def runner(job: Job, operator: Any, inputs: Sequence[Any]) -> Callable[[int], None]:
    """Return a function that runs the next ``batch`` inputs, cyclically.

    Where the workload makes items of any size, it runs one item of the size ``batch``.
    """
    following = itertools.cycle(inputs)
    of_size = _sized_items(job)

    def run(batch: int) -> None:
        items = of_size.get(batch)
        _outputs(operator, [next(items)] if items else list(itertools.islice(following, batch)))

    return run


def _sized_items(job: Job) -> dict[int, Iterator[Any]]:
    """Return endless items of each size to measure; {} for a task whose items have none."""
    if job.file.pipeline.size is None:
        return {}
    rng = np.random.default_rng(job.seed)
    made = {size: sized_inputs(job.file, job.task.name, size, rng) for size in job.batches}
    return {size: itertools.cycle(items) for size, items in made.items() if items}


def predicted_outputs(operator: Any, inputs: Sequence[Any], batch: int) -> list[Any]:
    """Return the operator's outputs for all inputs; raise ``ProfileError`` if it refuses one."""
    outputs: list[Any] = []
    for at in range(0, len(inputs), batch):
        outputs += _outputs(operator, list(inputs[at : at + batch]))
    for output in outputs:
        if isinstance(output, Exception):
            raise ProfileError(f"the operator refused a sample of the workload: {output}")
    return outputs


def _outputs(operator: Any, values: list[Any]) -> Sequence[Any]:
    returned = operator.predict(own_values(values))
    try:
        outputs = listed(returned)
    except TypeError as error:
        raise ProfileError(str(error)) from error
    if len(outputs) != len(values):
        raise ProfileError(
            f"predict returned {len(outputs)} outputs for {len(values)} inputs; "
            "it must return one for each"
        )
    return outputs


def gpu_free_bytes(device: str) -> int:
    """Return the bytes free on a CUDA device; 0 on any other device, and without torch."""
    if not device.startswith("cuda") or importlib.util.find_spec("torch") is None:
        return 0
    return int(library("torch").cuda.mem_get_info(device)[0])


def gpu_bytes(device: str, free_before: int) -> int:
    """Return the bytes of a CUDA device that this process took since ``free_before`` were free;
    0, for unknown, without torch.

    Torch's allocator knows its peak, but nothing of what other libraries took.
    """
    if importlib.util.find_spec("torch") is None:
        return 0
    reserved = int(library("torch").cuda.max_memory_reserved(device))
    return max(reserved, free_before - gpu_free_bytes(device))
