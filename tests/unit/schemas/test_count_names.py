"""Names of counts: what is counted, and for which object."""

import pytest

from schemas.count_names import CountName, count_name


@pytest.mark.parametrize(
    ("text", "name", "labels"),
    [
        ("arrived", CountName("arrived"), ()),
        ("arrived/read/forest", CountName("arrived", "read/forest"), ("read", "forest")),
        (
            "children/locate/net/read",
            CountName("children", "locate/net/read"),
            ("locate", "net", "read"),
        ),
        ("dropped/read_late", CountName("dropped", "read_late"), ("read_late",)),
    ],
)
def test_a_name_is_what_is_counted_and_of_what(
    text: str, name: CountName, labels: tuple[str, ...]
) -> None:
    assert count_name(text) == name
    assert count_name(text).labels == labels
