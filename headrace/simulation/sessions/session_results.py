"""The results of simulated sessions, as JSON and as text.

A session counts for the goodput while it meets its objectives: the seconds in which it had a plan,
times the share of its queries that were then answered in time, if the answers were as accurate as
its objective. ``goodput_sessions`` is their mean number, by weight, at a time; ``tiers`` the mean
number of devices in use; ``planned_p95_s`` the 95th percentile of the seconds until a session had a
plan.
"""

from typing import Any

import numpy as np

from headrace.cells import columns, decimal, percent
from headrace.simulation.sessions.session_run import SessionResult, SessionsRun


def as_row(run: SessionsRun) -> dict[str, Any]:
    """Return a run as JSON: fractions from 0 to 1, units in the keys."""
    rows = [session_row(each, run) for each in run.results]
    firsts = [row["serving_s"] for row in rows if row["serving_s"] is not None]
    planned = [row["planned_s"] for row in rows if row["planned_s"] is not None]
    return {
        "seconds": run.seconds,
        "sessions": len(rows),
        "served": len(firsts),
        "goodput_sessions": sum(map(_good_s, run.results)) / run.seconds,
        "usd_per_h": sum(each.usd for each in run.results) * 3600 / run.seconds,
        "tiers": [
            {"tier": name, "used": _used_s(run, name) / run.seconds, "of": count}
            for name, count in run.devices.items()
        ],
        "serving_mean_s": sum(firsts) / len(firsts) if firsts else None,
        "planned_p95_s": float(np.quantile(planned, 0.95)) if planned else None,
        "replans": sum(row["replans"] for row in rows),
        "plans": run.plans,
        "profile_s": run.profile_s,
        "by_session": rows,
    }


def session_row(result: SessionResult, run: SessionsRun) -> dict[str, Any]:
    """Return a session as JSON."""
    last = result.last
    return {
        "session": result.session.id,
        "lasted_s": max(0.0, result.closed_s - result.opened_s),
        "planned_s": last.planned_s if last is not None else None,
        "serving_s": result.serving_s,
        "served_s": result.served_s,
        "queries": dict(sorted(result.outcomes.items())),
        "attainment": _attainment(result),
        "accuracy": _accuracy(result),
        "usd": result.usd,
        "replans": last.replans if last is not None else 0,
        "reason": last.reason if last is not None else run.refused.get(result.session.id, ""),
    }


def as_text(run: SessionsRun) -> str:
    """Return a run as a table with a line for all."""
    whole = as_row(run)
    rows = [
        [
            row["session"],
            decimal(row["serving_s"]),
            decimal(row["served_s"], 0),
            percent(row["attainment"]),
            decimal(row["accuracy"], 3),
            f"{row['usd']:.4f}",
            str(row["replans"]),
            row["reason"][:60],
        ]
        for row in whole["by_session"]
    ]
    head = ["session", "waited s", "served s", "in time", "accuracy", "$", "replans", "waits for"]
    total = (
        f"{whole['served']} of {whole['sessions']} sessions served; "
        f"{whole['goodput_sessions']:.2f} at once met their objectives on average; "
        f"{whole['usd_per_h']:.3f} $/h; {whole['plans']} plans, "
        f"{whole['profile_s']:.1f} device seconds of profiling; devices used: "
        + ", ".join(f"{t['used']:.2f} of {t['of']} {t['tier']}" for t in whole["tiers"])
    )
    return f"{columns([head, *rows], left=(0, 7))}\n{total}"


def _used_s(run: SessionsRun, tier: str) -> float:
    """Return the seconds of a tier's devices that sessions had."""
    return sum(each.device_s.get(tier, 0.0) for each in run.results)


def _attainment(result: SessionResult) -> float | None:
    """Return the share in time of the queries that were admitted."""
    admitted = sum(count for name, count in result.outcomes.items() if name != "refused")
    return result.in_time / admitted if admitted else None


def _accuracy(result: SessionResult) -> float | None:
    return sum(result.scores) / len(result.scores) if result.scores else None


def _good_s(result: SessionResult) -> float:
    accuracy, last = _accuracy(result), result.last
    if accuracy is None or last is None or accuracy < (last.accuracy or 0.0):
        return 0.0
    return result.session.weight * result.served_s * (_attainment(result) or 0.0)
