"""Questions with their answers: what load and profile send, and how they judge."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from answers.passages import passages, vocabulary, words
from answers.retrieve import Letters

MISSPELT = 0.4  # share of the questions with two letters of a word exchanged
SIZED = 8  # items of a size


class Questions:
    """Questions about passages drawn at random, by the subject or by some words of the text."""

    def queries(self, rng: np.random.Generator) -> Iterator[tuple[bytes, str]]:
        """Questions without end, and the passage that answers each."""
        while True:
            number = int(rng.integers(len(passages())))
            yield question(number, rng).encode(), passages()[number][1]

    def score(self, result: Any, truth: str) -> tuple[int, int]:
        """Whether the answer is the passage, word for word."""
        return int(result == truth), 1

    def task_inputs(
        self, task: str, n: int, rng: np.random.Generator
    ) -> tuple[list[Any], list[Any]]:
        """``n`` inputs of the task; the truth is a passage's number, for generate its text."""
        numbers = [int(number) for number in rng.integers(len(passages()), size=n)]
        texts = [passages()[number][1] for number in numbers]
        if task == "generate":
            return texts, texts
        asked = [question(number, rng) for number in numbers]
        if task == "retrieve":
            return [each.encode() for each in asked], numbers
        search = Letters()
        search.load("cpu")
        return [search.found(each) for each in asked], texts

    def task_score(self, task: str, output: Any, truth: Any) -> float:
        """1.0 where the passage is among those found, is the one chosen, is what was written."""
        if task == "retrieve":
            return float(truth in output[0]["passages"])
        return float((output[0].value if task == "rerank" else output) == truth)

    def sized_inputs(self, task: str, size: int, rng: np.random.Generator) -> list[Any]:
        """Passages for which generate writes ``size`` words."""
        if task != "generate":
            return []
        return [" ".join(rng.choice(vocabulary(), size=size)) for _ in range(SIZED)]


def question(number: int, rng: np.random.Generator) -> str:
    """A question that the passage answers."""
    subject, text = passages()[number]
    if rng.random() < 0.4:
        asked = f"what is {subject}"
    else:
        telling = [word for word in words(text) if len(word) > 3] or words(text)
        some = rng.permutation(len(telling))[:4]
        asked = "which has " + " ".join(telling[at] for at in sorted(some))
    return _misspelt(asked, rng) if rng.random() < MISSPELT else asked


def _misspelt(asked: str, rng: np.random.Generator) -> str:
    listed = asked.split()
    long = [at for at, word in enumerate(listed) if at > 1 and len(word) > 3]
    if not long:
        return asked
    at = long[int(rng.integers(len(long)))]
    word, place = listed[at], int(rng.integers(1, len(listed[at]) - 2))
    listed[at] = word[:place] + word[place + 1] + word[place] + word[place + 2 :]
    return " ".join(listed)
