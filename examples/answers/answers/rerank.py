"""Rerank: the passage that answers the question."""

from pathlib import Path
from typing import Any

import lightgbm
import numpy as np

from answers.passages import passages, scores, trigrams, weighted, words
from headrace import Sized


class First:
    """The passage that retrieve put first; no model."""

    def load(self, device: str) -> None:
        """Nothing to load."""

    def predict(self, batch: list[dict[str, Any]]) -> list[list[Sized]]:
        """One item for generate, for each question."""
        return [[item_of(found["passages"][0])] for found in batch]


class Trees(First):
    """The passage that boosted trees (LightGBM) find the likeliest, by ``features``."""

    def __init__(self, weights: str) -> None:
        self._file = Path(weights)

    def load(self, device: str) -> None:
        """Read the trees, and index the passages."""
        self._booster = lightgbm.Booster(model_file=str(self._file))
        self._index = Index()

    def predict(self, batch: list[dict[str, Any]]) -> list[list[Sized]]:
        """One item for generate, for each question."""
        rows = [self._index.features(found["question"], found["passages"]) for found in batch]
        points = self._booster.predict(np.concatenate(rows), num_threads=1)
        ends = np.cumsum([len(each) for each in rows])[:-1]
        best = (int(np.argmax(each)) for each in np.split(points, ends))
        return [[item_of(f["passages"][at])] for f, at in zip(batch, best, strict=True)]


class Index:
    """What features need of the passages."""

    def __init__(self) -> None:
        self._by_word = weighted(words(text) for _, text in passages())
        self._by_letter = weighted(trigrams(f"{subject} {text}") for subject, text in passages())
        self._by_subject = weighted(trigrams(subject) for subject, _ in passages())

    def features(self, question: str, candidates: list[int]) -> np.ndarray:
        """One row for each candidate: its scores by word, letters and subject, how far each is
        below the best candidate's, its place, and its length and the question's in words."""
        terms = words(question), trigrams(question), trigrams(question)
        found = [
            scores(each, *index)[candidates]
            for each, index in zip(
                terms, (self._by_word, self._by_letter, self._by_subject), strict=True
            )
        ]
        places = np.arange(len(candidates))
        lengths = [len(passages()[number][1].split()) for number in candidates]
        below = [points.max() - points for points in found]
        asked = np.full(len(candidates), len(terms[0]))
        return np.column_stack([*found, *below, places, lengths, asked])


def item_of(number: int) -> Sized:
    """The item of a passage: its size is the number of words that generate will write."""
    text = passages()[number][1]
    return Sized(text, size=len(text.split()))
