"""Apply a delta of the dashboard's view, as ``headrace/dashboard/static/view.js`` does."""

from collections.abc import Mapping
from typing import Any

from headrace.dashboard.view_delta import SERIES, Sections, View


def applied(view: View, change: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the view after a delta; ``applied(a, delta(a, b)) == b``."""
    return {name: _section_applied(view[name], change[name]) for name in view}


def _section_applied(sections: Sections, change: Mapping[str, Any]) -> dict[str, Any]:
    found = {**sections, **change["set"]}
    for name in SERIES:
        since = change["since"][name]
        every = [*sections[name], *change["rows"][name]]
        found[name] = [] if since is None else [row for row in every if row[0] >= since]
    return found
