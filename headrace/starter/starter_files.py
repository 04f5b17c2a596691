"""The files of ``headrace init``: a starter pipeline.

    names = starter_names("my reviews", "")
    write_starter(Path("my-reviews"), starter_files(names))

The starter runs unchanged and needs nothing beyond Headrace: reviews are split into sentences, one
of two variants judges each sentence, and a workload provides the right answers.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template

from headrace.errors import PipelineError


@dataclass(frozen=True, slots=True)
class Names:
    """The pipeline's name and the prefix of its modules' names."""

    pipeline: str
    module: str


def starter_names(folder: str, name: str) -> Names:
    """Derive the names from ``name``, else from the folder; raises ``PipelineError`` if neither
    makes a name."""
    pipeline = name or re.sub(r"[^a-z0-9]+", "-", folder.lower()).strip("-")
    if not re.fullmatch(r"[a-z0-9-]*[a-z0-9][a-z0-9-]*", pipeline):
        what = f"the name {name!r}" if name else f"the folder's name {folder!r}"
        raise PipelineError(
            f"{what} makes no pipeline name, which may hold small letters, digits and '-' only; "
            "give one with --name"
        )
    module = pipeline.replace("-", "_").strip("_")
    return Names(pipeline, f"p{module}" if module[0].isdigit() else module)


def starter_files(names: Names) -> dict[str, str]:
    """Return the texts of a starter pipeline by file name."""
    return {
        name.replace("MODULE", names.module): Template(text).substitute(
            name=names.pipeline, module=names.module
        )
        for name, text in TEMPLATES.items()
    }


def write_starter(folder: Path, files: Mapping[str, str]) -> tuple[Path, ...]:
    """Create the folder, write the files into it and return their paths.

    Raises ``PipelineError``, before writing anything, if one of the files exists.
    """
    paths = {folder / name: text for name, text in files.items()}
    there = [path for path in paths if path.exists()]
    if there:
        raise PipelineError(f"{there[0]} is there already; name another folder or move it away")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in paths.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PipelineError(
            f"{folder} cannot be written ({error.strerror}); name another folder"
        ) from error
    return tuple(paths)


_PIPELINE = """\
# Reviews are split into sentences; each sentence is judged; the answer is the balance.
# Every key is explained in docs/reference/pipeline-file.md of Headrace.
name: $name
slo: 500ms                     # from the query's time stamp to its answer
input: raw                     # any bytes on the topic $name.queries are a query
results: json                  # answers on the topic $name.results
combine: ${module}_operators:balance
workload: ${module}_workload:Reviews
tasks:
  split:
    children: [judge]          # a list of sentences becomes one item each
    variants:
      sentences: {operator: "${module}_operators:Sentences", batch: 8}
  judge:
    variants:                  # two ways to do it: `headrace profile` measures both
      words: {operator: "${module}_operators:Words", batch: 32}
      phrases: {operator: "${module}_operators:Phrases", batch: 16}
policy: accurate
policies:
  accurate: {kind: static, replicas: {split/sentences: 1, judge/phrases: 1}}
  fast: {kind: static, replicas: {split/sentences: 1, judge/words: 1}}
cluster:
  devices: {cpu: 2}            # two workers; cuda:0 and so on for GPUs
"""

_OPERATORS = '''\
"""The operators of the pipeline $name.

An operator is a class: ``predict`` takes batch after batch, with one output for each input. One
with a model loads it in ``load(self, device)``; docs/reference/operators.md of Headrace shows
ready-made operators for torch, transformers, ONNX and LightGBM.
"""

import re

GOOD = {"good", "great", "fine", "friendly", "quick", "tasty"}
BAD = {"bad", "awful", "cold", "rude", "slow", "dear"}
NEGATIONS = {"not", "never", "hardly"}


class Sentences:
    """A review, as bytes, to the list of its sentences: the items for the next task."""

    def predict(self, batch):
        return [split(review.decode()) for review in batch]


class Words:
    """1 for a good word, -1 for a bad one, summed over the sentence."""

    def predict(self, batch):
        return [sum(tone(word) for word in words(sentence)) for sentence in batch]


class Phrases:
    """As ``Words``, but what follows a negation counts the other way round."""

    def predict(self, batch):
        return [self.judge(words(sentence)) for sentence in batch]

    def judge(self, found):
        signs = [-1 if before in NEGATIONS else 1 for before in ["", *found]]
        return sum(sign * tone(word) for sign, word in zip(signs, found, strict=False))


def balance(scores):
    """The result of a query from its sentences' scores, in order; None where one is missing."""
    total = sum(score for score in scores if score is not None)
    return "good" if total > 0 else "bad" if total < 0 else "mixed"


def split(text):
    return [sentence for sentence in re.split(r"[.!?]+\\s*", text) if sentence.strip()]


def words(sentence):
    return re.findall(r"[a-z]+", sentence.lower())


def tone(word):
    return (word in GOOD) - (word in BAD)
'''

_WORKLOAD = '''\
"""Sample reviews with the right answers: for `headrace load` and `headrace profile`."""

from ${module}_operators import BAD, GOOD, NEGATIONS, balance

THINGS = ["The food", "The service", "The room", "The view", "The bill"]


class Reviews:
    def queries(self, rng):
        """Reviews without end: the bytes, and what the answer should be."""
        while True:
            pairs = [sentence(rng) for _ in range(rng.integers(1, 6))]
            text = " ".join(text for text, _ in pairs)
            yield text.encode(), balance([score for _, score in pairs])

    def score(self, result, truth):
        """The number of right parts of an answer, and of all its parts."""
        return int(result == truth), 1

    def task_inputs(self, task, n, rng):
        """Inputs of one task and the outputs that are right."""
        pairs = [sentence(rng) for _ in range(n)]
        if task == "judge":
            return [text for text, _ in pairs], [score for _, score in pairs]
        return [text.encode() for text, _ in pairs], [[text.rstrip(".")] for text, _ in pairs]

    def task_score(self, task, output, truth):
        """The score of one output, from 0 to 1."""
        return float(output == truth)


def sentence(rng):
    """A sentence and its score: 1 good, -1 bad. Every third has a negation."""
    good = bool(rng.integers(2))
    word = rng.choice(sorted(GOOD if good else BAD))
    negated = rng.integers(3) == 0
    verb = f"was {rng.choice(sorted(NEGATIONS))}" if negated else "was"
    return f"{rng.choice(THINGS)} {verb} {word}.", 1 if good != negated else -1
'''

_README = """\
# $name

A pipeline for Headrace: queries on the Kafka topic
`$name.queries`, answers on `$name.results`.

| file | what it is |
| --- | --- |
| `pipeline.yaml` | tasks, variants, policies, cluster |
| `${module}_operators.py` | what the tasks do |
| `${module}_workload.py` | sample queries with right answers |

```bash
headrace validate pipeline.yaml
headrace up pipeline.yaml                        # until Ctrl-C; a local broker if you name none

# in another terminal
echo "The food was not bad. The view was great." | headrace send pipeline.yaml - --id first
headrace explain pipeline.yaml first
headrace load pipeline.yaml --rate 20 --seconds 10
headrace policy apply pipeline.yaml fast
headrace status pipeline.yaml
```

From Python:

```python
from headrace import Client

with Client("localhost:9092", "$name") as client:  # `headrace broker status` has the address
    print(client.ask(b"The food was great.").result)
```
"""

TEMPLATES = {
    "pipeline.yaml": _PIPELINE,
    "MODULE_operators.py": _OPERATORS,
    "MODULE_workload.py": _WORKLOAD,
    "README.md": _README,
}
