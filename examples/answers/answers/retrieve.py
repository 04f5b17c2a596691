"""Retrieve: the passages that may answer a question."""

from typing import Any, ClassVar

import numpy as np

from answers.passages import passages, scores, trigrams, weighted, words

KEPT = 8


class Search:
    """BM25 over terms of subject and text; a query is the question in UTF-8.

    An output is one item for rerank: the question, and the numbers of the best passages.
    """

    terms: ClassVar[Any] = staticmethod(words)

    def load(self, device: str) -> None:
        """Index the passages."""
        pages = (f"{subject} {text}" for subject, text in passages())
        self._columns, self._weights = weighted(map(self.terms, pages))

    def predict(self, batch: list[bytes]) -> list[list[dict[str, Any]]]:
        """One item for each question."""
        return [[self.found(question.decode())] for question in batch]

    def found(self, question: str) -> dict[str, Any]:
        """The question and its ``KEPT`` best passages, the best first."""
        points = scores(self.terms(question), self._columns, self._weights)
        best = np.argsort(-points, kind="stable")[:KEPT]
        return {"question": question, "passages": [int(number) for number in best]}


class Words(Search):
    """By whole words: quick, and blind to a misspelt one."""


class Letters(Search):
    """By three letters in a row: what is left of a misspelt word is still found."""

    terms = staticmethod(trigrams)
