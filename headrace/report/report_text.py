"""Render the report of a live pipeline as text and as an HTML page."""

from collections.abc import Iterator
from html import escape

from headrace.cells import columns, decimal, local_time, percent
from headrace.config.cluster_cost import run_costs
from headrace.fidelity.certificate_text import certificate_text
from headrace.html.page import number, page, section, setting, table, text
from headrace.html.time_series_page import given_up_table, latencies, over_time
from headrace.report.live_report import LiveReport
from headrace.results.label_accuracy import NO_CLASS
from profiles.path_accuracy import gap_text
from schemas.records import ANSWERED

LIVE = "live"
BAR = 24  # characters for the longest step


def report_text(made: LiveReport) -> str:
    """Return the report as text."""
    table = columns(_figures(made), left=(0, 1))
    variants = ["", columns(_variants(made))] if made.variants else []
    measured = ["", columns(_measured(made))] if made.measured else []
    parts = [*variants, *measured, *_steps(made), *_expected(made), *_certificate_lines(made)]
    return "\n".join([*_lead(made), "", table, *parts])


def report_page(made: LiveReport) -> str:
    """Return the report as an HTML page."""
    named = [(LIVE, made.recording)]
    rows = [[text(name), number(shown)] for name, shown in _figures(made)]
    body = [
        section("Figures", "Of the queries that have an answer.", table(("", "live"), rows)),
        _variant_section(made),
        *_measured_section(made),
        *over_time(named, f"seconds since {local_time(made.first_s)}"),
        latencies(named, made.file.pipeline.slo_s),
        given_up_table(named),
        *_certificate(made),
    ]
    return page(f"{made.file.pipeline.name}, live", _lead(made), body, setting())


def _lead(made: LiveReport) -> Iterator[str]:
    pipeline = made.file.pipeline
    yield (
        f"{made.figures.queries:,} queries of {pipeline.name}, created from "
        f"{local_time(made.first_s)} to {local_time(made.last_s)}; SLO {pipeline.slo_s * 1e3:g} ms"
    )
    policies = ", ".join(
        f"{each.policy} since {local_time(each.since_s)}" for each in made.policies
    )
    if policies:
        yield f"policy: {policies}"


def _figures(made: LiveReport) -> list[tuple[str, str]]:
    found, queries = made.figures, made.figures.queries
    rows = [
        ("violation", percent(found.violation, 2)),
        ("of branches", percent(found.branch_violation, 2)),
        ("accuracy", percent(found.accuracy, 2)),
        ("devices", decimal(found.devices_mean)),
        *((f"p{n} ms", decimal(ms))
          for n, ms in ((50, found.p50_ms), (95, found.p95_ms), (99, found.p99_ms))),
        *((name, f"{count:,} ({percent(count / queries, 2)})")
          for name, count in made.counts.items() if name != "lost"),
        *_class_rows(made),
        *_costs(made),
    ]  # fmt: skip
    return rows


_VARIANT_HEAD = ("variant", "queries", "answered", "p50 ms", "p95 ms", "expected accuracy")


def _variants(made: LiveReport) -> list[tuple[str, ...]]:
    """Return the outcomes by variant, the head first."""
    rows = [
        (each.variant, f"{each.queries:,}",
         percent(each.outcomes.get(ANSWERED, 0) / each.queries, 2),
         decimal(each.p50_ms), decimal(each.p95_ms), percent(each.expected_accuracy, 2))
        for each in made.variants
    ]  # fmt: skip
    return [_VARIANT_HEAD, *rows]


def _steps(made: LiveReport) -> list[str]:
    """Return where the time of answered queries went on average, with a bar for each step."""
    steps = made.figures.steps_ms
    total, longest = sum(steps.values()), max(steps.values(), default=0.0)
    if longest <= 0:
        return []
    rows = [
        (step, f"{mean:.2f} ms", percent(mean / total), "#" * round(BAR * max(0.0, mean) / longest))
        for step, mean in steps.items()
    ]
    return ["", "where the time went, mean of answered queries", columns(rows, left=(0, 3))]


def _expected(made: LiveReport) -> list[str]:
    expected = made.expected
    if expected is None:
        return []
    return [
        "",
        f"expected accuracy of answered queries: {percent(expected.by_paths)} by measured paths, "
        f"{percent(expected.by_products)} by products of variants",
        gap_text(expected.gap),
    ]


def _variant_section(made: LiveReport) -> str:
    rows = [[text(row[0]), *map(number, row[1:])] for row in _variants(made)[1:]]
    about = "Queries with a branch through the variant; answered: complete and in time."
    return section("Outcomes by variant", about, table(_VARIANT_HEAD, rows))


_MEASURED_HEAD = ("measured by labels", "labels", "accuracy", "from", "to")


def _measured(made: LiveReport) -> list[tuple[str, ...]]:
    """Return the measured accuracy of all, by path, class and hour, the head first."""
    found = made.measured
    if found is None:
        return []
    rows = (found.overall, *found.paths, *found.classes, *found.hours)
    return [
        _MEASURED_HEAD,
        *(
            (each.name, f"{each.queries:,}",
             *(percent(share, 2) for share in (each.accuracy, each.low, each.high)))
            for each in rows
        ),
    ]  # fmt: skip


def _measured_section(made: LiveReport) -> Iterator[str]:
    rows = [[text(row[0]), *map(number, row[1:])] for row in _measured(made)[1:]]
    if rows:
        about = "Of the answers that have a label, by path, class and hour, with 95 % intervals."
        yield section("Measured accuracy", about, table(_MEASURED_HEAD, rows))


def _class_rows(made: LiveReport) -> Iterator[tuple[str, str]]:
    """Yield the queries of each SLO class and the part of them that was answered in time."""
    for name, counts in sorted(made.classes.items()) if made.file.pipeline.slo_classes else ():
        queries = sum(counts.values())
        in_time = percent(counts[ANSWERED] / queries, 2)
        yield f"class {name or NO_CLASS}", f"{queries:,}, {in_time} in time"


def _costs(made: LiveReport) -> Iterator[tuple[str, str]]:
    found = run_costs(made.file.cluster, made.counts["answered"], made.last_s - made.first_s)
    if found:
        yield "$ an hour", decimal(found["usd_per_h"], 3)
        yield "$ per 1000 answers", decimal(found["usd_per_1000_answers"], 5)


def _certificate(made: LiveReport) -> Iterator[str]:
    if made.certificate is not None:
        about = "How well simulations of this pipeline predicted live runs (headrace fidelity)."
        shown = f'<pre class="wide">{escape(certificate_text(made.certificate))}</pre>'
        yield section("Certificate of the simulation", f"{about} {_stale(made)}".strip(), shown)


def _certificate_lines(made: LiveReport) -> list[str]:
    if made.certificate is None:
        return []
    stale = [_stale(made)] if made.stale else []
    it = made.certificate
    head = (
        f"the simulation's newest certificate: {it.verdict}; predicted {it.predicted_at}, "
        f"{it.repeats} live runs"
    )
    return ["", head, *stale, *([made.certificate.warning] if made.certificate.warning else [])]


def _stale(made: LiveReport) -> str:
    if not made.stale:
        return ""
    return f"The certificate is outdated: {', '.join(made.stale)} changed since."
