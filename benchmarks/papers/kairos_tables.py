"""Tables of docs/results/kairos.md, from searches."""

from collections.abc import Sequence

from benchmarks.papers.kairos_compare import Mix, Search


def mean_qps(found: Sequence[Search], **asked: object) -> float | None:
    """Return the mean over seeds of the searches with these fields, None if there is none."""
    these = [x.qps for x in found if all(getattr(x, key) == asked[key] for key in asked)]
    return sum(these) / len(these) if these else None


def mix_text(mix: Mix) -> str:
    """Return a mix as the page writes it."""
    return "+".join(map(str, mix))


def lines_of(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of the page."""
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], "| --- " * len(head) + "|", *lines[1:]])
