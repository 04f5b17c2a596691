"""Send one query from the terminal and format its answer."""

import json
import time
from pathlib import Path
from typing import Any, BinaryIO

from headrace.broker.connect import reached
from headrace.client.formats import payload_from
from headrace.client.open_loop import PATIENCE_S, answer_by_s
from headrace.client.topic_clients import ask_once, new_id
from headrace.errors import Unsuccessful
from headrace.results.tally import latency_ms, outcome_text
from schemas.codec.json_form import json_value, to_json
from schemas.codec.path_tree import compact
from schemas.pipeline import Pipeline
from schemas.records import ANSWERED, Answer, Query, Value
from schemas.visible_text import one_line
from streams.kafka.admin.preflight import prepare


def send_one(
    pipeline: Pipeline,
    *,
    file: Path,
    input: BinaryIO,
    bootstrap: str | None,
    deadline: float | None,
    slo_class: str,
    name: str,
    size: int = 1,
    session: str = "",
) -> Answer:
    """Send one query and return its answer.

    Raises ``CodecError`` for an input that is no payload, ``Unsuccessful`` if no answer arrives.
    """
    payload = payload_from(input.read(), pipeline.input, input.name)
    kafka = reached(bootstrap)
    prepare(kafka, pipeline, "producer", "consumer")
    query = Query(
        payload=payload,
        id=name or new_id("query"),
        deadline_s=None if deadline is None else time.time() + deadline,
        slo_class=slo_class,
        size=size,
        session=session,
    )
    wait_s = answer_by_s(pipeline, deadline, slo_class) + PATIENCE_S
    answer = ask_once(kafka, pipeline, query, wait_s)
    if answer is None:
        raise Unsuccessful(
            f"no answer to {query.id} within {wait_s:.1f} s; check that the pipeline is up: "
            f"`headrace status {file} --once`, else `headrace up {file}`"
        )
    return answer


def answer_json(answer: Answer) -> dict[str, Any]:
    """Return the JSON form of an answer, with the latency."""
    row: dict[str, Any] = json.loads(to_json(compact(answer)))
    row["latency_ms"] = round(latency_ms(answer), 3)
    return row


def answer_text(answer: Answer) -> str:
    """Return the result on the first line; outcome, latency and variants on the second."""
    lines = [] if answer.outcome != ANSWERED else [_shown(answer.result)]
    what = outcome_text(answer)
    where = f" at {answer.task}" if answer.task else ""
    why = f"{where}: {one_line(answer.reason)}" if answer.reason else where
    lines.append(f"{what}{why} ({latency_ms(answer):.1f} ms, {_variants(answer)})")
    return "\n".join(lines)


def _shown(result: Value) -> str:
    return result if isinstance(result, str) else json.dumps(json_value(result))


Tree = dict[str, "Tree"]


def _variants(answer: Answer) -> str:
    tree: Tree = {}
    for path in answer.paths:
        below = tree
        for hop in path:
            below = below.setdefault(hop.key, {})
    return f"plan {answer.epoch}" + (f", {_tree_text(tree)}" if tree else "")


def _tree_text(tree: Tree) -> str:
    """Return the tree of variants as text: ``split/a -> (sentiment/b, topic/c)``."""
    parts = [f"{name} -> {_below(below)}" if below else name for name, below in tree.items()]
    return ", ".join(parts)


def _below(tree: Tree) -> str:
    return _tree_text(tree) if len(tree) == 1 else f"({_tree_text(tree)})"
