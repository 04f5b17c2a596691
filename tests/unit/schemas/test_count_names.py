"""Names of counts: what is counted, and for which object."""

import pytest

from schemas.count_names import CountName, count_name


@pytest.mark.parametrize(
    ("text", "name", "labels"),
    [
        ("arrived", CountName("arrived"), ()),
        ("arrived/read/forest", CountName("arrived", "read/forest"), ("read", "forest")),
        ("children/locate/net/read", CountName("children", "locate/net/read"),
         ("locate", "net", "read")),
        ("dropped/read_late", CountName("dropped", "read_late"), ("read_late",)),
    ],
)  # fmt: skip
def test_a_name_is_what_is_counted_and_of_what(
    text: str, name: CountName, labels: tuple[str, ...]
) -> None:
    assert count_name(text) == name
    assert count_name(text).labels == labels


def test_the_counts_of_ten_thousand_sessions_are_split_once() -> None:
    """Egress repeats them in every report, and the control app splits each several times."""
    names = [f"session/s{n}/{end}" for n in range(10_000) for end in ("answered", "late")]
    list(map(count_name, names))
    before = count_name.cache_info().misses
    list(map(count_name, names))
    assert count_name.cache_info().misses == before
