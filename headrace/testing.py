"""Run one query through the operators of a pipeline in this process: unit tests without Kafka.

    answer = run_query("pipeline.yaml", b"some text")
    assert answer.result == ["SOME", "TEXT"]

Operators are loaded and called as a worker does, item by item, with fan-out, errors and
``combine``; without deadlines, batches of several queries and limits.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.config.user_functions import load_combine
from headrace.errors import PipelineError
from operators.calls.operator_outputs import listed
from operators.calls.own_values import own_values
from operators.calls.user_frames import error_sentence, with_frames
from operators.join import Join, OpenQuery, as_list
from operators.models.loading import load_operator
from operators.serving.fanout import failed_item, outcome
from schemas.pipeline import Task, Variant
from schemas.records import Answer, Hop, Item, Origin, Value
from schemas.variant_id import variant_key

__all__ = ["run_query"]


def run_query(
    file: str | Path | PipelineFile,
    payload: Value,
    *,
    variants: Mapping[str, str] | None = None,
    device: str = "cpu",
) -> Answer:
    """Return the answer to one query; if an operator raises, it is ``failed``, with the reason.

    ``variants`` maps tasks to variants ("split": "bach"); the default is the task's first variant.
    Raises ``PipelineError`` for an invalid file or an unknown name in ``variants``, and
    ``ModelError`` for an operator that cannot be constructed.
    """
    read = file if isinstance(file, PipelineFile) else read_pipeline_file(Path(file))
    chosen = _chosen(read, variants or {})
    loaded: dict[str, Any] = {}
    for name, variant in chosen.items():
        loaded[name] = load_operator(variant)
        loaded[name].load(device)
    query = OpenQuery("local", Origin(0, 0), 0.0, float("inf"))
    waiting = [(read.pipeline.root.name, Item(value=payload))]
    while waiting:
        name, item = waiting.pop(0)
        for child, made in _ran(read.pipeline.task(name), chosen[name], loaded[name], item):
            if child:
                waiting.append((child, made))
            else:
                query.branches[made.branch] = made
                query.credit += made.credit
    return Join(read.pipeline, load_combine(read.pipeline) or as_list, {}).answer(query, 0.0)


def _chosen(file: PipelineFile, named: Mapping[str, str]) -> dict[str, Variant]:
    tasks = {task.name: {v.name: v for v in task.variants} for task in file.pipeline.tasks}
    for task, variant in named.items():
        if variant not in tasks.get(task, {}):
            raise PipelineError(
                f"{file.path} has no variant {variant_key(task, variant)}; name one of "
                f"{', '.join(f'{t}/{v}' for t, each in tasks.items() for v in each)}"
            )
    return {
        name: each[named[name]] if name in named else next(iter(each.values()))
        for name, each in tasks.items()
    }


def _ran(task: Task, variant: Variant, operator: Any, item: Item) -> list[tuple[str, Item]]:
    hop = Hop(
        task=task.name, variant=variant.name, worker="local", epoch=0, received_s=0.0,
        started_s=0.0, finished_s=0.0, batch=1,
    )  # fmt: skip
    path = (*item.path, hop)
    try:
        outputs = listed(operator.predict(own_values([item.value])))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - of a user's operator: the answer
        text = with_frames(f"{variant.key} raised {error_sentence(error)}", error)
        return [("", failed_item(task.name, item, path, text))]
    if len(outputs) != 1:
        text = f"{variant.key} returned {len(outputs)} outputs for 1 inputs"
        return [("", failed_item(task.name, item, path, text))]
    return outcome(task, item, path, outputs[0])
