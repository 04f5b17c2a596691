"""Render one query's waterfall as text, to scale in the width of the terminal."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from rich.text import Text

from headrace.results.tally import latency_ms, outcome_text
from headrace.results.waterfall import (
    KAFKA,
    QUEUE,
    RUN,
    Explained,
    Fate,
    WaterfallStage,
    WaterfallStep,
)
from operators.outcomes import outcome_of
from schemas.codec.json_form import to_json
from schemas.records import ANSWERED, Answer, Query
from schemas.variant_id import variant_key
from schemas.visible_text import one_line

# Distinguishable without colours too.
MARKS = {KAFKA: ("·", "dim"), QUEUE: ("░", "yellow"), RUN: ("█", "green")}
DEADLINE = "|"
NAMES, NUMBER = 18, 9  # characters
SMALLEST_BAR = 10


def waterfall_lines(story: Explained, pipeline: str, width: int) -> list[Text]:
    """Return the lines to print, at most ``width`` characters each if ``width`` is 60 or more."""
    return [
        *_head(story.answer, pipeline, width),
        Text(""),
        *_waterfall(story, width),
        *_ends(story.fates),
        *(Text(f"note: {note}", style="yellow") for note in story.notes),
    ]


# ---------------------------------------------------------------------- head


def _head(answer: Answer, pipeline: str, width: int) -> Iterator[Text]:
    right = outcome_of(answer) == ANSWERED
    yield Text(f"{answer.id} of {pipeline}: {_verdict(answer)}", style="green" if right else "red")
    made = datetime.fromtimestamp(answer.created_s, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    place = f"{answer.origin.partition}-{answer.origin.offset}"
    due_ms = (answer.deadline_s - answer.created_s) * 1e3
    due = f"due {abs(due_ms):.1f} ms {'later' if due_ms >= 0 else 'earlier'}"
    facts = [f"made {made} UTC as query {place}", due]
    facts.append(f"plan {answer.epoch}" if answer.epoch else "no plan")
    if answer.expected_accuracy is not None:
        facts.append(f"expected accuracy {answer.expected_accuracy:.3f}")
    yield Text(", ".join(facts))
    if answer.outcome == ANSWERED:
        yield Text(_cut(f"result: {_result(answer)}", width))


def _verdict(answer: Answer) -> str:
    took = f"after {latency_ms(answer):.1f} ms"
    left_ms = (answer.deadline_s - answer.answered_s) * 1e3
    when = f"{abs(left_ms):.1f} ms {'before' if left_ms >= 0 else 'after'} its deadline"
    if answer.outcome == ANSWERED:
        return f"{outcome_text(answer)} {took}, {when}"
    where = f" at {answer.task}" if answer.task else ""
    return f"{outcome_text(answer)}{where} {took}, {when}: {one_line(answer.reason)}"


def _result(answer: Answer) -> str:
    # The records' codec defines the JSON form of values.
    return json.dumps(json.loads(to_json(Query(payload=answer.result)))["payload"])


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


# ---------------------------------------------------------------------- waterfall


class _Scale:
    """Map milliseconds to columns of a bar; mark the deadline if it lies within."""

    def __init__(self, end_ms: float, due_ms: float, columns: int) -> None:
        self._per_ms = columns / end_ms if end_ms > 0 else 0.0
        self._columns = columns
        inside = 0 <= due_ms < end_ms
        self._due = min(int(due_ms * self._per_ms), columns - 1) if inside else -1

    def bar(self, step: WaterfallStep) -> Text:
        """Return the step's bar, at least one column long so that every step is visible."""
        mark, style = MARKS[step.kind]
        start = self._column(step.from_ms)
        length = max(1, round(max(0.0, step.to_ms) * self._per_ms) - start)
        length = min(length, self._columns - start)
        bar = Text(" " * start + mark * length + " " * (self._columns - start - length))
        bar.stylize(style, start, start + length)
        return self._marked(bar)

    def _column(self, at_ms: float) -> int:
        return min(max(0, int(at_ms * self._per_ms)), self._columns - 1)

    def _marked(self, bar: Text) -> Text:
        if self._due < 0 or bar.plain[self._due] != " ":
            return bar
        mark = Text(DEADLINE, style="red")
        return Text.assemble(bar[: self._due], mark, bar[self._due + 1 :])


def _waterfall(story: Explained, width: int) -> Iterator[Text]:
    answer = story.answer
    due_ms = (answer.deadline_s - answer.created_s) * 1e3
    steps = [step for stage in story.stages for step in stage.steps]
    end_ms = max(step.to_ms for step in (*steps, story.last))
    scale = _Scale(end_ms, due_ms, max(SMALLEST_BAR, width - NAMES - 3 * NUMBER - 1))
    marked = f"0 to {end_ms:.1f} ms"
    if 0 <= due_ms < end_ms:
        marked += f", deadline at {DEADLINE}"
    head = f"{'ms':<{NAMES}}{'at':>{NUMBER}}{'took':>{NUMBER}}{'slack':>{NUMBER}} {marked}"
    yield Text(head, style="bold")
    yield Text(f"{'made':<{NAMES}}{0:>{NUMBER}.1f}{'':>{NUMBER}}{due_ms:>{NUMBER}.1f}")
    for stage in story.stages:
        yield Text(_cut(_stage_line(stage), width), style="bold")
        for step in stage.steps:
            yield _step_line(step, scale)
    if story.stages:
        yield Text("answer", style="bold")
    yield _step_line(story.last, scale)


def _stage_line(stage: WaterfallStage) -> str:
    workers = stage.workers
    where = ", ".join(workers) if len(workers) <= 3 else f"{len(workers)} workers"
    sizes = f"a batch of {stage.batch[0]}"
    facts = [_released(stage)]
    if stage.batches > 1:
        sizes = f"{stage.batches} batches of {_span(stage.batch)}"
        facts.append(f"first done {stage.first_done_ms:.1f}")
    listed = "; ".join(filter(None, facts))
    sizes += f" ({listed})" if listed else ""
    line = (
        f"{variant_key(stage.task, stage.variant)} on {where}, plan {_span(stage.epochs)}, {sizes}"
    )
    return f"{line}, for {stage.branches} branches" if stage.branches > 1 else line


def _released(stage: WaterfallStage) -> str:
    """Return the reasons to start the batches; "" for records of older workers without them."""
    known = [(reason, count) for reason, count in stage.released if reason]
    if len(known) == 1:
        return known[0][0]
    return ", ".join(f"{count} {reason}" for reason, count in known)


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low}-{high}"


def _step_line(step: WaterfallStep, scale: _Scale) -> Text:
    numbers = f"{step.from_ms:>{NUMBER}.1f}{step.took_ms:>{NUMBER}.1f}"
    slack = Text(f"{step.slack_ms:>{NUMBER}.1f}", style="red" if step.slack_ms < 0 else "")
    line = Text.assemble(f"  {step.name:<{NAMES - 2}}", numbers, slack, " ", scale.bar(step))
    line.rstrip()
    return line


# ---------------------------------------------------------------------- ends


def _ends(fates: Sequence[Fate]) -> Iterator[Text]:
    """Yield how the branches ended, if that adds to the first line."""
    if len(fates) < 2 and all(fate.branches == 1 or fate.outcome == ANSWERED for fate in fates):
        return
    for fate in fates:
        branches = f"{fate.branches} branch{'es' if fate.branches > 1 else ''}"
        where = f" at {fate.task}" if fate.task else ""
        why = f": {one_line(fate.reason)}" if fate.reason else ""
        style = "" if fate.outcome == ANSWERED else "red"
        yield Text(f"{branches} {fate.outcome}{where}{why}", style=style)
