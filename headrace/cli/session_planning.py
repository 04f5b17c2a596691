"""``headrace search``, ``schedule`` and ``tier-speed``: query plans for one session and for many,
and the speed of a tier that they are priced with."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.shared_options import (
    DURATION,
    NumberRange,
    bootstrap_option,
    json_option,
    one_blas_thread,
    pipeline_argument,
    read_file,
)
from headrace.errors import INFEASIBLE
from headrace.terminal import library_output_hidden, print_json, print_text, progress, say

if TYPE_CHECKING:
    from headrace.config.pipeline_file import PipelineFile
    from headrace.planning.session_search import Found, ProfileSource
    from headrace.planning.sessions_file import PlannedSessions

PAGE_EVERY_S = 1.0
READY_WITHIN_S = 180.0  # a profiler imports torch, on a busy laptop


@click.command()
@pipeline_argument
@click.option(
    "--recorded",
    type=click.Path(path_type=Path),
    help="Profiles of every configuration; the search runs none.",
)
@click.option("--accuracy", type=NumberRange(0, 1), help="Minimum. Default: the file's.")
@click.option("--slo", type=DURATION, help="Latency, as in 60ms. Default: the file's.")
@click.option("--cost", type=NumberRange(0), help="Most $ per hour.")
@click.option(
    "--deadline", type=DURATION, help="End after this time. Default: the policy's deadline."
)
@click.option("--spend", type=NumberRange(0), help="Most $ of profiling; 0: no limit.")
@click.option("--steps", type=click.IntRange(1), help="Most profiled configurations.")
@click.option("--session", help="Name of the session. Default: cli.")
@click.option(
    "--from-topic", type=DURATION, metavar="DURATION",
    help="Profile on the inputs that --session has sent in this time, as in 600s, instead of the "
    "workload's samples.",
)  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True,
    help="Seed of the workload's samples; another seed is another session's data.",
)  # fmt: skip
@click.option(
    "--profilers", type=click.IntRange(0),
    help="Profilers to start for this search; 0: use running ones. Default: cluster.profilers.",
)  # fmt: skip
@click.option(
    "--html", type=click.Path(path_type=Path),
    help="Write an HTML page with the plans found; it is updated every second.",
)  # fmt: skip
@bootstrap_option
@json_option
def search(
    file: Path, recorded: Path | None, accuracy: float | None, slo: float | None,
    cost: float | None, deadline: float | None, spend: float | None, steps: int | None,
    session: str | None, from_topic: float | None, seed: int, profilers: int | None,
    html: Path | None, bootstrap: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Search a query plan for one session: knobs, tiers and shares.

    Profilers run configurations on the workload's samples. The deadline starts once a profiler is
    ready. Exit code 3: the search found no plan within the SLO; the nearest plan is shown.

    \b
    Example:
      headrace search examples/postcode/planned.yaml --accuracy 0.9 --html page.html
      headrace search examples/postcode/planned.yaml --recorded truth.json
    """
    one_blas_thread()
    from headrace.atomic_file import writable, write_page
    from headrace.html.search_page import search_page
    from headrace.planning.search_report import as_json as line
    from headrace.planning.search_report import as_text
    from headrace.planning.session_search import Asked, search_deadline_s, searched

    if html is not None:
        writable(html)
    read = read_file(file)
    asked = Asked(
        session=session or "cli", accuracy=accuracy, latency_s=slo, usd_per_h=cost,
        deadline_s=deadline, spend_usd=spend, steps=steps,
    )  # fmt: skip
    within_s = search_deadline_s(read, asked)  # raises before profilers are started in vain
    if from_topic is not None and recorded is not None:
        raise click.UsageError("--from-topic is not for --recorded, which has samples of its own")
    samples = _sample_set(read, session, from_topic, seed)
    with (
        _source(read, recorded, samples, profilers, bootstrap, asked.session) as source,
        _shown(file.name, within_s, html) as show,
    ):
        found = searched(read, source, asked, show)
    if html is not None:
        write_page(html, search_page(file.name, found))
        say(f"wrote {html}")
    print_json(line(found)) if as_json else print_text(as_text(found))
    return 0 if found.search.plans else INFEASIBLE


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False, metavar="[FILE]")
@click.option(
    "--sessions",
    type=click.Path(path_type=Path),
    help="YAML of sessions with their objectives; needs FILE and --recorded.",
)
@click.option(
    "--recorded",
    type=click.Path(path_type=Path),
    help="Profiles of every configuration of FILE, for the search of plans.",
)
@click.option(
    "--instance",
    type=click.Path(path_type=Path),
    help="JSON of tiers, and of queries with their plans; instead of FILE.",
)
@click.option(
    "--objective",
    type=click.Choice(["goodput", "cost"]),
    default="goodput",
    show_default=True,
    help="Serve the most weight that fits, or everything at the least $ per hour.",
)
@click.option(
    "--gpus",
    type=click.Choice(["given", "any"]),
    default="given",
    show_default=True,
    help="Use the given numbers of GPUs, or as many as needed.",
)
@click.option(
    "--policy",
    default="compass",
    show_default=True,
    metavar="NAME",
    help="compass, compass-paper (greedy), compass-ilp (small instances), first-come.",
)
@json_option
def schedule(
    file: Path | None, sessions: Path | None, recorded: Path | None, instance: Path | None,
    objective: str, gpus: str, policy: str, as_json: bool,
) -> int:  # fmt: skip
    """Choose a plan for each of many sessions, on tiers of shared GPUs.

    Nothing is started. Exit code 3: with --objective cost, some session cannot be served.

    \b
    Example:
      headrace schedule planned.yaml --sessions sessions.yaml --recorded truth.json
      headrace schedule --instance instance.json --objective goodput --json
    """
    one_blas_thread()
    from headrace.planning import sessions_file
    from headrace.planning.instance_file import as_json as line
    from headrace.planning.instance_file import as_text, read_instance, schedule_by

    planned = None
    if instance is not None and file is None:
        read = read_instance(instance, gpus)
    elif file is not None and sessions is not None and recorded is not None and instance is None:
        planned = _planned(read_file(file), sessions, recorded, gpus)
        read = planned.instance
    else:
        raise click.UsageError(
            "give either FILE with --sessions and --recorded, or --instance without FILE"
        )
    with library_output_hidden():
        made = schedule_by(read, objective, policy)
    if as_json:
        print_json(line(read, made) | (sessions_file.as_json(planned, made) if planned else {}))
    else:
        more = "\n" + sessions_file.as_text(planned, made) if planned else ""
        print_text(as_text(read, made) + more)
    return 0 if made.feasible else INFEASIBLE


@click.command()
@pipeline_argument
@click.argument("tier", metavar="TIER")
@click.option(
    "--recorded",
    type=click.Path(path_type=Path),
    help="Profiles of every configuration, instead of running profilers.",
)
@click.option(
    "--samples", type=click.IntRange(2), default=50, show_default=True,
    help="Samples of the workload that every configuration runs.",
)  # fmt: skip
@bootstrap_option
@json_option
def tier_speed(
    file: Path, tier: str, recorded: Path | None, samples: int, bootstrap: str | None, as_json: bool
) -> None:
    """Measure the speed of a tier on this machine.

    Run it on a machine of the tier, while the profilers of the pipeline run. Both run every variant
    on the same samples; the speed is the profilers' seconds over the seconds here. A search
    divides the seconds of profiles by the speed in the file.

    \b
    Example:
      headrace tier-speed planned.yaml cloud --bootstrap broker:9092
      headrace tier-speed planned.yaml cloud --recorded truth.json
    """
    from headrace.profiling import tier_speed as measuring

    read = read_file(file)
    measuring.real_tier(read, tier)  # raises before profilers are awaited in vain
    sample_set = _sample_set(read, None, None, 0)
    with _source(read, recorded, sample_set, 0, bootstrap, "tier-speed") as source:
        found = measuring.tier_speed(read, tier, source, sample_set, samples)
    print_json(measuring.as_json(found)) if as_json else print_text(measuring.as_text(found))


def _planned(file: "PipelineFile", sessions: Path, recorded: Path, gpus: str) -> "PlannedSessions":
    from headrace.config.pipeline_file import search_space
    from headrace.planning.recorded_truth import read_truth
    from headrace.planning.sessions_file import planned_sessions, read_sessions

    space = search_space(file)
    truth = read_truth(recorded, space.space)
    return planned_sessions(file, read_sessions(sessions, space), truth, gpus)


def _sample_set(
    file: "PipelineFile", session: str | None, recent_s: float | None, seed: int
) -> str:
    """Return the name of the set to profile on: inputs of a session, else the workload's."""
    from control.problem.sample_sets import Truth, first_set, own_set
    from headrace.config.pipeline_file import search_space

    truth, now = search_space(file).truth, time.time()
    if recent_s is None:
        return first_set(truth, now, seed)
    if session is None:
        raise click.UsageError(
            "--from-topic reads the inputs of one session; name it with --session"
        )
    if truth is not Truth.REFERENCE and file.pipeline.labels is None:
        raise click.UsageError(
            "--from-topic needs labels of the inputs, and the file has none; add `labels: {}` and "
            "send labels, or `profiling: {truth: reference, ...}`, which needs none"
        )
    return own_set(truth, session, now - recent_s, now)


@contextmanager
def _shown(file: str, deadline_s: float, html: Path | None) -> "Iterator[Callable[[Found], None]]":
    """Yield what shows the search after a step: on stderr, and on the page every second."""
    from headrace.atomic_file import write_page
    from headrace.html.search_page import search_page
    from headrace.planning.search_report import progress_note

    total = max(1, round(deadline_s))
    due_s = 0.0
    with progress("search, s of its deadline", total) as advance:

        def show(found: "Found") -> None:
            nonlocal due_s
            advance(min(int(found.elapsed_s), total), progress_note(found))
            if html is not None and time.monotonic() >= due_s:
                write_page(html, search_page(file, found))
                due_s = time.monotonic() + PAGE_EVERY_S

        yield show


@contextmanager
def _source(
    file: "PipelineFile", recorded: Path | None, samples: str, count: int | None,
    bootstrap: str | None, session: str,
) -> "Iterator[ProfileSource]":  # fmt: skip
    from headrace.config.pipeline_file import search_space
    from headrace.planning.session_search import RecordedProfiles

    sessions = search_space(file)
    if recorded is not None:
        from headrace.planning.recorded_truth import read_truth

        yield RecordedProfiles(sessions.space, read_truth(recorded, sessions.space))
        return
    from control.problem.sample_sets import Truth
    from headrace.broker.connect import brokers
    from headrace.cluster.supervisor import running_profilers
    from headrace.config.profile_files import measured_space, planning_profile
    from headrace.config.user_functions import load_workload
    from headrace.planning.live_profiles import LiveProfiles
    from headrace.planning.profiler_pings import await_profilers
    from streams.kafka.admin.preflight import prepare

    sessions = measured_space(file, planning_profile(file))
    if sessions.truth is not Truth.FEEDBACK:
        load_workload(file)
    kafka = brokers(bootstrap)
    prepare(kafka, file.pipeline, "profiler")
    number = file.cluster.profilers if count is None else count
    with (
        running_profilers(file, kafka.bootstrap, number, say) as (tend, _),
        LiveProfiles(
            kafka, file.pipeline, sessions, samples, session, ahead=number, tend=tend
        ) as source,
    ):
        await_profilers(kafka, file.pipeline.name, sessions, READY_WITHIN_S, tend)
        yield source
