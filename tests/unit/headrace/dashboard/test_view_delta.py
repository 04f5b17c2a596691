"""A view and its deltas yield the newest view."""

import json

from hypothesis import given
from hypothesis import strategies as st

from headrace.dashboard.view_delta import SERIES, delta
from tests.applied_deltas import applied

values = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda each: st.lists(each, max_size=2) | st.dictionaries(st.text(max_size=2), each),
    max_leaves=4,
)


@st.composite
def histories(draw: st.DrawFn) -> list[dict]:
    """Alternate views of two pipelines: rows are appended at the end and dropped at the start."""
    times = sorted(draw(st.sets(st.integers(0, 30), max_size=12)))
    rows = [[float(at), draw(values)] for at in times]
    cuts = sorted(draw(st.tuples(st.integers(0, len(rows)), st.integers(0, len(rows)))))
    starts = sorted(draw(st.tuples(st.integers(0, cuts[0]), st.integers(0, cuts[1]))))
    return [
        {
            name: {
                "now": draw(values),
                "late": draw(st.lists(values, max_size=2)),
                **{series: rows[start:cut] for series in SERIES},
            }
            for name in ("a", "b")
        }
        for start, cut in zip(starts, cuts, strict=True)
    ]


@given(histories())
def test_a_view_with_its_delta_is_the_next_view(views: list[dict]) -> None:
    before, after = views
    assert applied(before, json.loads(json.dumps(delta(before, after)))) == after


def test_a_delta_has_only_what_is_new() -> None:
    same = {"late": [1], "queues": [], "plans": [[4, "plan"]], "events": []}
    before = {"p": {"now": 1, "rates": [[1.0, 5], [2.0, 6]], **same}}
    after = {"p": {"now": 2, "rates": [[2.0, 6], [3.0, 7]], **same}}
    assert delta(before, after) == {
        "p": {
            "set": {"now": 2},
            "rows": {"rates": [[3.0, 7]], "queues": [], "plans": [], "events": []},
            "since": {"rates": 2.0, "queues": None, "plans": 4, "events": None},
        }
    }
