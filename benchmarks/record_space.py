"""Record scores and stage times of every configuration of a pipeline with knobs.

    python -m benchmarks.record_space FILE OUT [--samples 300] [--seed 0]

Run every configuration on the same samples of the file's workload, one after the other; each stage
runs once for all configurations with equal options up to it. Seconds are CPU seconds per sample of
all threads: run with OMP_NUM_THREADS=1. ``headrace search FILE --recorded OUT`` searches the
recording. The pipeline's tasks must form a chain.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from control.problem.session_space import SessionSpace
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file, search_space
from headrace.config.user_functions import load_combine, load_workload
from headrace.errors import PipelineError
from operators.models.loading import load_operator

WRITTEN_EVERY = 10  # samples
DIGIT = 9


@dataclass(slots=True)
class Sums:
    """CPU seconds and bytes of outputs of one prefix at one stage, summed over all samples."""

    seconds: float = 0.0
    bytes: float = 0.0


@dataclass(slots=True)
class Recorder:
    """The operators of all settings, with the sums and scores so far."""

    file: PipelineFile
    sessions: SessionSpace
    operators: dict[tuple[int, int], Any] = field(default_factory=dict)  # by stage and prefix
    sums: dict[tuple[int, int], Sums] = field(default_factory=dict)
    scores: list[list[int]] = field(default_factory=list)
    of: int = 1

    def load(self) -> None:
        """Load the operator of every setting of a stage once."""
        space = self.sessions.space
        shared: dict[tuple[int, str], Any] = {}
        for configuration in range(space.configuration_count):
            for stage, described in enumerate(space.stages):
                name = self.sessions.setting(described.name, configuration)
                if (stage, name) not in shared:
                    shared[stage, name] = self._operator(described.name, configuration)
                at = stage, int(space.prefixes[configuration, stage])
                self.operators[at] = shared[stage, name]
                self.sums.setdefault(at, Sums())
        self.scores = [[] for _ in range(space.configuration_count)]

    def _operator(self, task: str, configuration: int) -> Any:
        setting = self.sessions.setting(task, configuration)
        operator: Any = load_operator(self.sessions.variant(self.file.pipeline, setting))
        operator.load("cpu")
        return operator

    def sample(self, payload: bytes, truth: Any, judge: Any, combine: Any) -> None:
        """Run all configurations on one sample."""
        space = self.sessions.space
        last = len(space.stages) - 1
        outputs: dict[tuple[int, int], list[Any]] = {(-1, 0): [payload]}
        for configuration in range(space.configuration_count):
            before = (-1, 0)
            for stage in range(last + 1):
                at = stage, int(space.prefixes[configuration, stage])
                if at not in outputs:
                    outputs[at] = self._run(at, outputs[before], leaf=stage == last)
                before = at
            leaves = [space.stages[last].name] * len(outputs[before])
            result = combine(outputs[before], leaves) if combine else outputs[before]
            right, self.of = judge(result, truth)
            self.scores[configuration].append(int(right))

    def _run(self, at: tuple[int, int], items: list[Any], *, leaf: bool) -> list[Any]:
        began = time.process_time()
        found = self.operators[at].predict(items) if items else []
        sums = self.sums[at]
        sums.seconds += time.process_time() - began
        outputs = found if leaf else [item for each in found for item in _items(each)]
        sums.bytes += sum(_size(each) for each in outputs)
        return outputs


def _items(output: Any) -> list[Any]:
    if isinstance(output, Exception):
        return []
    return output if isinstance(output, list) else next(iter(output.values()))


def _size(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    return len(value) if isinstance(value, (bytes, str)) else 8


def document(recorder: Recorder, samples: int, input_bytes: float, seed: int) -> dict[str, Any]:
    """Return the recording with its provenance."""
    space = recorder.sessions.space
    names = [stage.name for stage in space.stages]

    def per_sample(configuration: int, what: str) -> dict[str, float]:
        sums = [recorder.sums[s, int(space.prefixes[configuration, s])] for s in range(len(names))]
        values = [getattr(each, what) / samples for each in sums]
        return {name: round(value, 8) for name, value in zip(names, values, strict=True)}

    return {
        "pipeline": recorder.file.pipeline.name,
        "input_bytes": round(input_bytes, 1),
        "result_bytes": 16.0,
        "of": recorder.of,
        "provenance": {
            "samples": samples,
            "seed": seed,
            "seconds": "CPU seconds a sample, OMP_NUM_THREADS="
            + os.environ.get("OMP_NUM_THREADS", ""),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "python": platform.python_version(),
            "day": str(datetime.now(UTC).date()),
        },
        "configurations": [
            {
                "options": space.named(c),
                "scores": "".join(map(str, recorder.scores[c])),
                "seconds": per_sample(c, "seconds"),
                "bytes": per_sample(c, "bytes"),
            }
            for c in range(space.configuration_count)
        ],
    }


def record(path: Path, samples: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the recording after every ten samples and at the end, so that it may be interrupted.

    Raises ``PipelineError`` for a file without knobs, or whose tasks do not form a chain.
    """
    file = read_pipeline_file(path)
    sessions = search_space(file)
    if any(len(task.children) > 1 for task in file.pipeline.tasks):
        raise PipelineError(f"{path}: tasks with several children cannot be recorded here")
    workload, combine = load_workload(file), load_combine(file.pipeline)
    recorder = Recorder(file, sessions)
    recorder.load()
    total = 0
    queries = workload.queries(np.random.default_rng(seed))
    for number, (payload, truth) in enumerate(islice(queries, samples), 1):
        total += len(payload)
        recorder.sample(payload, truth, workload.score, combine)
        if recorder.of > DIGIT:
            raise PipelineError(f"{path}: scores of more than {DIGIT} parts are no digits")
        if number % WRITTEN_EVERY == 0 or number == samples:
            yield document(recorder, number, total / number, seed)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse arguments, record and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--samples", type=int, default=300, help="(300)")
    parser.add_argument("--seed", type=int, default=0, help="(0)")
    options = parser.parse_args(arguments)
    try:
        for recorded in record(options.file, options.samples, options.seed):
            options.out.write_text(json.dumps(recorded, separators=(",", ":")), encoding="utf-8")
            done = recorded["provenance"]["samples"]
            print(f"recording: {done} of {options.samples} samples", file=sys.stderr)
    except PipelineError as error:
        sys.exit(f"benchmarks.record_space: {error}")


if __name__ == "__main__":
    main()
