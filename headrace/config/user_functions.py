"""The user's functions that a pipeline file names: workload, combine and split function, scorer."""

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import Any

import numpy as np

from control.problem.lazy_references import parts
from headrace.config.pipeline_file import PipelineFile
from headrace.errors import PipelineError
from operators.calls.user_frames import error_sentence, with_frames
from operators.ingress.query_parts import Split
from operators.models.user_modules import import_module
from schemas.pipeline import Labels, Pipeline

# The methods of a workload class; the arguments are in docs/reference/operators.md.
WORKLOAD_METHODS = ("queries", "score", "task_inputs", "task_score")


def load_workload(file: PipelineFile, instead: str = "") -> Any:
    """Return an instance of the file's workload class; raises ``PipelineError`` without one.

    ``instead`` tells the user what also serves, such as an option of the command.
    """
    if not file.workload:
        other = f"; or {instead}" if instead else ""
        raise PipelineError(
            f"{file.path}: no workload is named; add a line such as: workload: "
            f"package.module:Class{other}"
        )
    kind = _imported(file.workload, "workload")
    missing = [name for name in WORKLOAD_METHODS if not callable(getattr(kind, name, None))]
    if missing:
        raise PipelineError(
            f"workload {file.workload} has no method {' and no '.join(missing)}; "
            f"a workload class has {', '.join(WORKLOAD_METHODS)}"
        )
    return kind()


def sized_inputs(file: PipelineFile, task: str, size: int, rng: np.random.Generator) -> list[Any]:
    """Return some items of a task that have this size; [] if the workload makes none.

    A workload has the method ``sized_inputs(task, size, rng)`` if one item of size n costs other
    than n items of size 1, such as tokens that are generated one after another.
    """
    made = getattr(load_workload(file), "sized_inputs", None)
    return list(made(task, size, rng)) if made is not None else []


def load_combine(pipeline: Pipeline) -> Callable[..., Any] | None:
    """Return the pipeline's combine function, ``None`` without one; raises ``PipelineError``.

    It takes the outputs of leaf tasks and their tasks, even if the user's function takes only the
    outputs.
    """
    if not pipeline.combine:
        return None
    function = _function(pipeline.combine, "combine")
    if _takes_tasks(function):
        return function

    @wraps(function)
    def combine(outputs: list[Any], tasks: Sequence[str]) -> Any:
        return function(outputs)

    return combine


def _takes_tasks(function: Callable[..., Any]) -> bool:
    try:
        signature(function).bind([], [])
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return False
    required = [p for p in signature(function).parameters.values() if p.default is p.empty]
    return len(required) > 1 or "tasks" in signature(function).parameters


def load_split(pipeline: Pipeline) -> Split | None:
    """Return the function that splits queries above the largest size, ``None`` without one; raises
    ``PipelineError``."""
    size = pipeline.size
    return _function(size.split, "size.split") if size is not None and size.split else None


def load_scorer(labels: Labels) -> Callable[[Any, Any], Any] | None:
    """Return the function that scores a result by its truth, ``None`` for an exact match; raises
    ``PipelineError``."""
    return _function(labels.scorer, "labels.scorer") if labels.scorer else None


def _function(spec: str, what: str) -> Callable[..., Any]:
    function = _imported(spec, what)
    if not callable(function):
        raise PipelineError(f"{what} names {spec}, which is no function; write one")
    return function  # type: ignore[no-any-return]


def _imported(spec: str, what: str) -> Any:
    try:
        module, name = parts(spec)
    except ValueError as error:
        raise PipelineError(f"{what}: {error}") from error
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        raise PipelineError(
            f"{what} names {spec}, but {module} cannot be imported: {error}; put it beside the "
            "pipeline file or install it"
        ) from error
    except AttributeError as error:
        raise PipelineError(
            f"{what} names {spec}, but {module} has no {name}; correct the name"
        ) from error
    except (Exception, SystemExit) as error:
        text = f"{what} names {spec}, but importing {module} raised {error_sentence(error)}"
        raise PipelineError(with_frames(text, error)) from error
