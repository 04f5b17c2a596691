"""The passages that are searched: sentences of Headrace's own pages, by their subject."""

import csv
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parents[1]
LONGEST = 31  # words of a passage
_WORD = re.compile(r"[a-z0-9_.%/'-]*[a-z0-9%]")


@cache
def passages() -> tuple[tuple[str, str], ...]:
    """Subjects and texts; a text is words in small letters, one space between them."""
    with (FOLDER / "passages.tsv").open(newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return tuple((row["subject"], row["text"]) for row in rows)


@cache
def vocabulary() -> tuple[str, ...]:
    """Every word of the texts, in the order of the alphabet."""
    return tuple(sorted({word for _, text in passages() for word in text.split()}))


def words(text: str) -> list[str]:
    """The words of a text, in small letters."""
    return _WORD.findall(text.lower())


def trigrams(text: str) -> list[str]:
    """Every three letters in a row, words with a space before and behind."""
    padded = f" {' '.join(words(text))} "
    return [padded[at : at + 3] for at in range(len(padded) - 2)]


def weighted(terms: Iterable[Iterable[str]]) -> tuple[dict[str, int], np.ndarray]:
    """Columns by term, and BM25's weights: one row for each list of terms (k1 1.2, b 0.75).

    Robertson and Zaragoza, The Probabilistic Relevance Framework, 2009.
    """
    listed = [list(each) for each in terms]
    columns = {term: at for at, term in enumerate(sorted({t for each in listed for t in each}))}
    counts = np.zeros((len(listed), len(columns)), dtype=np.float32)
    for row, each in enumerate(listed):
        for term in each:
            counts[row, columns[term]] += 1
    length = counts.sum(axis=1, keepdims=True)
    holding = (counts > 0).sum(axis=0)
    rarity = np.log1p((len(listed) - holding + 0.5) / (holding + 0.5))
    saturated = counts * 2.2 / (counts + 1.2 * (0.25 + 0.75 * length / length.mean()))
    return columns, (saturated * rarity).astype(np.float32)


def scores(terms: Iterable[str], columns: dict[str, int], weights: np.ndarray) -> np.ndarray:
    """The score of every passage for a question's terms."""
    known = [columns[term] for term in dict.fromkeys(terms) if term in columns]
    return weights[:, known].sum(axis=1)
