"""Commands that show what runs: ``status``, ``dashboard``, ``logs``, ``explain``, ``report`` and
``traces``."""

import re
import time
from collections import deque
from pathlib import Path
from typing import Any

import click

from headrace.broker.connect import reached_running
from headrace.cli.shared_options import (
    DURATION,
    NumberRange,
    Parsed,
    bootstrap_option,
    host_option,
    json_option,
    pipeline_argument,
    pipelines_argument,
    read_file,
)
from headrace.errors import Unsuccessful
from headrace.roles.observability.log_options import LOOPBACK, metrics_url
from headrace.terminal import print_json, print_rich, print_text, rich_console, say


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@bootstrap_option
@click.option("--once", is_flag=True, help="Print one table and exit.")
@json_option
def status(file: Path | None, bootstrap: str | None, once: bool, as_json: bool) -> None:
    """Show the state of running pipelines every second until Ctrl-C.

    Without FILE the table has a row for every pipeline on the broker, and the variants on each
    device. With FILE it has a row for each task and variant of one pipeline: workers, open slots,
    records waiting on the broker (lag), items in the workers' queues, items per second in, done,
    dropped and failed, batch size, busy time.

    \b
    Example:
      headrace status pipeline.yaml --once --json
    """
    from headrace.cluster.running_file import named_pipeline
    from headrace.status.watch import show_all, show_status

    if file is None:
        show_all(reached_running(bootstrap), once=once, as_json=as_json)
    else:
        named = named_pipeline(file)
        kafka = reached_running(bootstrap)
        show_status(named.name, named.file, kafka, once=once, as_json=as_json)


@click.command()
@pipelines_argument
@bootstrap_option
@host_option
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="Port of the page; 0: any free port.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="File with the access token. Default: a random token, which is printed.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="HOST",
    help="Further host name of the page; repeatable.",
)
def dashboard(files: tuple[Path, ...], bootstrap: str | None, **asked: Any) -> None:
    """Serve a live web page of running pipelines.

    The page shows rates, latencies, the plan and its changes, queues, devices, and where late
    queries spent their time. The dashboard is read-only and can be stopped at any time.

    \b
    Example:
      headrace dashboard pipeline.yaml
      headrace dashboard one.yaml two.yaml --port 0
    """
    from headrace.dashboard.dashboard_role import DashboardOptions, run_dashboard
    from headrace.processes import follow_supervisor

    options = DashboardOptions(**asked)
    read = [read_file(file) for file in files]
    follow_supervisor()
    run_dashboard(read, reached_running(bootstrap), options, print_text)


LEVELS = ("debug", "info", "warning", "error")
FOLLOW_S = 0.3


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None
    return text


REGEX = Parsed("REGEX", _pattern)


@click.command()
@pipeline_argument
@click.option(
    "--role", "roles", multiple=True, metavar="NAME", help="Logs of this role only, as cpu-0."
)
@click.option("--level", type=click.Choice(LEVELS), default="debug", help="Lowest level to show.")
@click.option("--grep", "pattern", type=REGEX, default="", help="Only lines that match.")
@click.option(
    "--last", type=click.IntRange(0), default=100, show_default=True, help="Number of lines."
)
@click.option("-f", "--follow", is_flag=True, help="Print new lines until Ctrl-C.")
def logs(file: Path, follow: bool, last: int, **asked: Any) -> None:
    """Show the logs of all roles in this and the last run, by time.

    \b
    Example:
      headrace logs pipeline.yaml --level warning
      headrace logs pipeline.yaml --role cpu-0 --follow --grep "loaded|failed"
    """
    import time

    from headrace.cluster.log_files import Filter, Follower, LogEntry, log_entries, role_logs
    from headrace.cluster.running_file import named_pipeline
    from headrace.processes import run_directory

    directory = run_directory(named_pipeline(file).name)
    known = role_logs(directory)
    if not known:
        raise Unsuccessful(
            f"there are no logs in {directory}; `headrace up FILE` on this machine writes them"
        )
    unknown = [name for name in asked["roles"] if name not in known]
    if unknown:
        raise click.UsageError(f"no role {unknown[0]!r} has a log; there are {', '.join(known)}")
    wanted = Filter(tuple(asked["roles"]), asked["level"], asked["pattern"])
    width = max(map(len, known))

    def show(entry: LogEntry) -> None:
        print_text(f"{entry.role:<{width}} | {entry.text}")

    following = Follower(directory)
    for entry in deque(log_entries(directory, wanted), maxlen=last):
        show(entry)
    while follow:
        time.sleep(FOLLOW_S)
        for entry in following.take(wanted):
            show(entry)


ENDS = ("answered", "late", "dropped", "failed", "refused")


@click.command()
@pipeline_argument
@click.argument("name", metavar="[ID]", required=False)
@bootstrap_option
@click.option(
    "--last", type=click.Choice(ENDS), help="Without ID: the newest query with this outcome."
)
@click.option("--all", "every", is_flag=True, help="Show every batch, without summaries.")
@json_option
def explain(
    file: Path,
    name: str | None,
    bootstrap: str | None,
    last: str | None,
    every: bool,
    as_json: bool,
) -> None:
    """Show where one query's time went, step by step, and what ended it.

    ID is the query's id, or PARTITION-OFFSET of its record on the input topic. The default is the
    query with the newest answer. Times are in ms since the query's creation; slack is the time
    left to the deadline at the end of each step.

    \b
    Example:
      headrace explain pipeline.yaml my-query
      headrace explain pipeline.yaml 2-1234 --json
      headrace explain pipeline.yaml --last late
    """
    from headrace.client.find_answer import find_answer, last_answer
    from headrace.results.waterfall import SHOWN, explained
    from headrace.results.waterfall_text import waterfall_lines

    if name and last:
        raise click.UsageError("--last is for when you have no ID; leave one of them out")
    pipeline, kafka = read_file(file).pipeline, reached_running(bootstrap)
    answer = find_answer(kafka, pipeline, name) if name else last_answer(kafka, pipeline, last)
    story = explained(answer, 10**6 if every else SHOWN)
    if as_json:
        print_json(story.as_json())
        return
    for line in waterfall_lines(story, pipeline.name, rich_console().width):
        print_rich(line)


@click.command()
@pipeline_argument
@click.option("--last", type=DURATION, default="600s", show_default=True,
              help="Report on queries created within this time up to now.")  # fmt: skip
@click.option("--html", type=click.Path(path_type=Path), help="Write an HTML page with charts.")
@bootstrap_option
@json_option
def report(file: Path, last: float, html: Path | None, bootstrap: str | None, as_json: bool) -> int:
    """Report the outcomes of a live pipeline's queries.

    The report has outcomes, latencies, accuracy, devices, and drops by task and reason. It is made
    from the answers and plans on the broker, so it also works after the pipeline has ended. It
    shows the newest certificate of the simulation beside the file (headrace fidelity).

    \b
    Example:
      headrace report pipeline.yaml --last 60s
      headrace report pipeline.yaml --html page.html
    """
    from headrace.atomic_file import writable, write_page
    from headrace.broker.connect import reached_running
    from headrace.report.live_report import live_report
    from headrace.report.report_text import report_page, report_text

    if html is not None:
        writable(html)
    made = live_report(read_file(file), reached_running(bootstrap), time.time(), last)
    if html is not None:
        write_page(html, report_page(made))
        say(f"wrote {html}")
    print_json(made.as_json()) if as_json else print_text(report_text(made))
    return 0


@click.command()
@pipeline_argument
@bootstrap_option
@click.option(
    "--otlp",
    "endpoint",
    default="http://localhost:4318",
    show_default=True,
    metavar="URL",
    help="Collector of OTLP over HTTP.",
)
@click.option(
    "--share",
    type=NumberRange(0, 1),
    default=0.01,
    show_default=True,
    help="Share of the answers in good time to export.",
)
@click.option("--since", type=DURATION, help="Start this long ago. Default: now.")
@click.option("--for", "length", type=DURATION, help="End after this time. Default: on Ctrl-C.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve Prometheus metrics of the export on this port; 0: any free port.",
)
@click.option(
    "--metrics-host",
    default=LOOPBACK,
    show_default=True,
    metavar="ADDRESS",
    help="Address to serve the metrics on.",
)
def traces(
    file: Path,
    bootstrap: str | None,
    endpoint: str,
    share: float,
    since: float | None,
    length: float | None,
    metrics_port: int | None,
    metrics_host: str,
) -> None:
    """Export traces of queries, made from their answers, to OpenTelemetry.

    The command exports every query that was not answered in time, that used more than 90 % of its
    time, or whose caller keeps the trace (header traceparent), and a share of the rest. It puts no
    load on the nodes.

    \b
    Example:
      headrace traces pipeline.yaml --otlp http://localhost:4318 --since 600s --for 30s
    """
    from headrace.roles.observability.metrics_port import serve
    from headrace.traces.delivery import checked
    from headrace.traces.trace_export import Sampling, TraceExport, delivery_to

    read = read_file(file)
    kafka = reached_running(bootstrap)
    since_s = None if since is None else time.time() - since
    delivery = delivery_to(endpoint, say, length)
    export = TraceExport(read.pipeline, Sampling(share), delivery)
    if metrics_port is not None:
        port = serve([export.samples], metrics_port, metrics_host, read.pipeline.name)
        say(f"metrics at {metrics_url(metrics_host, port)}")
    say(f"exporting traces of {read.pipeline.name} to {endpoint}")
    with checked(delivery):
        try:
            export.run(kafka, since_s)
        finally:
            kept = f"{export.answers} answers, {export.traces} traces kept"
            say(f"{kept}, {delivery.taken} spans exported")
