"""``headrace up``, attached or detached, and ``headrace down``."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from headrace.broker import local_broker as broker
from headrace.broker.connect import kafka_config, local_broker, reached
from headrace.cells import few
from headrace.cluster.local_run import (
    TEND_EVERY_S,
    LocalRun,
    ReceivedSignal,
    claim,
    listening,
    other_run,
    sole,
    take_down,
)
from headrace.cluster.purge import Purged
from headrace.cluster.purge import purge as purged_from
from headrace.cluster.run_state import RunState, clear_state, neighbours, write_state
from headrace.config.pipeline_file import PipelineFile
from headrace.config.validation import check_plannable
from headrace.errors import INTERRUPTED, UNSUCCESSFUL, Interrupted
from headrace.processes import HEADRACE, Process, environment, run_directory
from headrace.service_manager import service_manager
from headrace.terminal import print_json, print_text, say
from schemas.pipeline import Pipeline
from schemas.records import Plan, Settings
from streams.kafka.kafka_config import KafkaConfig

# File in a run's directory: the process id of the local broker that this run must stop.
HANDED_OVER = "broker-handed-over"
LOOPBACK = ("127.0.0.1", "localhost")  # names of the address that the local broker listens on
SHOWN_NODES = 12  # by `up`; `status` shows all


def up_attached(file: PipelineFile, bootstrap: str | None, *, as_json: bool) -> int:
    """Run the pipeline until SIGTERM or Ctrl-C; return exit code 0 or 130."""
    check_plannable(file)
    directory = run_directory(file.pipeline.name)
    with claimed(directory, file, bootstrap), listening() as received:
        try:
            with received.interrupting():
                kafka, started = _broker(bootstrap)
        except Interrupted:
            say(f"{file.pipeline.name}: interrupted before it was started")
            return INTERRUPTED if received.signal == signal.SIGINT else 0
        try:
            run = LocalRun(file, kafka, directory, broker_started=started)
            _serve(run, received, as_json=as_json)
        finally:
            if started or handed_over(directory):
                stop_broker(directory)
    return INTERRUPTED if received.signal == signal.SIGINT else 0


@contextlib.contextmanager
def claimed(directory: Path, file: PipelineFile, bootstrap: str | None) -> Iterator[None]:
    """Hold the run directory during the block, with a state that `down` finds while the broker
    starts. A local broker that a killed `up` had started becomes this run's to stop.

    Raises as ``claim`` and ``sole`` do.
    """
    killed = claim(directory)
    starting = RunState(
        pipeline=file.pipeline.name,
        file=str(file.path),
        bootstrap=kafka_config(bootstrap).bootstrap,
        supervisor=Process.found("up", os.getpid()),
    )
    with sole(directory):
        running = broker.status()
        if killed is not None and killed.broker_started and running is not None:
            # Nobody else would stop it.
            (directory / HANDED_OVER).write_text(str(running.pid))
        write_state(directory, starting)
        try:
            yield
        finally:
            clear_state(directory)


def _broker(bootstrap: str | None) -> tuple[KafkaConfig, bool]:
    """Return the brokers, and whether this run started the local one."""
    if kafka_config(bootstrap).bootstrap:
        return reached(bootstrap), False
    local = local_broker()
    try:
        return reached(local.bootstrap), local.started_here
    except BaseException:
        if local.started_here:
            broker.stop()
        raise


def _serve(run: LocalRun, received: ReceivedSignal, *, as_json: bool) -> None:
    began = time.monotonic()
    try:
        run.start()
        plan = run.await_ready(received)
        row = up_row(run, plan, time.monotonic() - began)
        print_json(row) if as_json else print_text(up_text(row))
        works = service_manager(os.environ)
        while not received.signal:
            run.tend()
            works()
            time.sleep(TEND_EVERY_S)
    except KeyboardInterrupt:
        run.kill()
        raise
    except Interrupted:
        pass  # a signal during start-up: shut down as usual
    finally:
        _stop(run)


def _stop(run: LocalRun) -> None:
    """Stop a run in order; a second Ctrl-C ends its roles at once."""
    say(f"{run.name}: stopping ingress, workers, egress, control")
    try:
        run.stop()
    except KeyboardInterrupt:
        run.kill()
        raise


def up_row(run: LocalRun, plan: Plan, took_s: float) -> dict[str, Any]:
    """Return the JSON row of `up` for a ready pipeline."""
    return {
        "pipeline": run.name,
        "bootstrap": run.bootstrap,
        "nodes": list(run.nodes),
        "epoch": plan.epoch,
        "policy": plan.settings.policy,
        "by_command": commanded_settings(plan.settings),
        "feasible": plan.feasible,
        "binding": plan.binding,
        "ready_s": round(took_s, 3),
        "logs": str(run.directory),
        "dashboard": run.page.url if run.page else None,
        "gateway": run.gateways.addresses if run.gateways else None,
        "metrics_ports": {role.name: role.metrics_port for role in run.roles if role.metrics_port},
    }


def up_text(row: dict[str, Any]) -> str:
    """Return the row as text."""
    lines = [
        f"{row['pipeline']} is up after {row['ready_s']:.0f} s at {row['bootstrap']}: "
        f"{few(row['nodes'], SHOWN_NODES)}",
        f"plan {row['epoch']}, policy {row['policy']}; logs in {row['logs']}",
    ]
    if row["metrics_ports"]:
        ports = sorted(row["metrics_ports"].values())
        lines.append(f"metrics on ports {ports[0]} to {ports[-1]}, at /metrics")
    if row["dashboard"]:
        lines.append(f"dashboard at {row['dashboard']}")
    if row["gateway"]:
        lines.append(f"gateway at {', '.join(row['gateway'].values())}")
    if row["by_command"]:
        lines.append(f"overridden by earlier commands: {', '.join(row['by_command'])}")
    if not row["feasible"]:
        lines.append(f"the plan is not feasible: {row['binding']}")
    return "\n".join(lines)


def commanded_settings(settings: Settings) -> list[str]:
    """Return the settings that differ from the pipeline file, each with the command to reset it."""
    found = []
    if settings.policy != settings.filed_policy:
        back = f"headrace policy apply FILE {settings.filed_policy}"
        found.append(f"policy {settings.policy} (to reset: `{back}`)")
    if settings.slo_s != settings.filed_slo_s:
        back = f"headrace command FILE set-slo slo={settings.filed_slo_s * 1e3:g}ms"
        found.append(f"an SLO of {settings.slo_s * 1e3:g} ms (to reset: `{back}`)")
    if settings.demand_qps is not None:
        back = "headrace command FILE release-demand"
        found.append(f"planned for {settings.demand_qps:g}/s (to reset: `{back}`)")
    if settings.drained:
        back = f"headrace restore FILE {settings.drained[0]}"
        found.append(f"{', '.join(settings.drained)} drained (to reset: `{back}`)")
    if settings.paused:
        found.append("paused (to reset: `headrace resume FILE`)")
    return found


def with_metrics(file: PipelineFile, port: int | None) -> PipelineFile:
    """Return the file with ``port`` as the first metrics port; None keeps the file's."""
    if port is None:
        return file
    return replace(file, cluster=replace(file.cluster, metrics_port=port))


# ---------------------------------------------------------------------- detached


def up_detached(file: PipelineFile, bootstrap: str | None, *, as_json: bool) -> int:
    """Start ``headrace up`` in its own session; return once it is ready or has ended."""
    directory = run_directory(file.pipeline.name)
    with claimed(directory, file, bootstrap):
        pass  # an error here ends this process, not the one in the background
    command = [*HEADRACE, "up", str(file.path)]
    command += ["--bootstrap", bootstrap] if bootstrap else []
    command += ["--json"] if as_json else []
    out, log = directory / "up.out", directory / "up.log"
    with out.open("wb") as stdout, log.open("wb") as stderr:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
            start_new_session=True, env=environment(os.environ, None),
        )  # fmt: skip
    try:
        return follow(child, out, log)
    except KeyboardInterrupt:
        child.terminate()
        child.wait()
        raise


def follow(child: "subprocess.Popen[bytes]", out: Path, log: Path) -> int:
    """Relay its output until it is ready (return 0) or has ended (return its exit code; 1 if it was
    ended by `down` or another SIGTERM, which is no error of its own)."""
    with log.open(encoding="utf-8", errors="replace") as lines:
        while child.poll() is None and out.stat().st_size == 0:
            _relay(lines)
            time.sleep(0.1)
        _relay(lines)
    print_text(out.read_text(encoding="utf-8").rstrip("\n")) if out.stat().st_size else None
    if child.poll() is None:
        say("still running in the background; `headrace down FILE` stops it")
        child.returncode = 0  # it outlives this process; suppresses Popen's warning
        return 0
    return child.returncode if child.returncode > 0 else UNSUCCESSFUL


def _relay(lines: TextIO) -> None:
    for line in lines:
        say(line.rstrip("\n"))


# ---------------------------------------------------------------------- down


def down_from_here(
    name: str, bootstrap: str | None, purge: Pipeline | None
) -> tuple[bool, Purged | None, str]:
    """End a pipeline's run on this machine; return whether there was one, the purged topics and
    records of the pipeline ``purge``, if any, and a text for the user."""
    directory = run_directory(name)
    borrowed = handed_over(directory)
    state = take_down(directory)
    borrowed = borrowed or handed_over(directory)
    ours = state is not None and (state.broker_started or borrowed)
    lines = [f"{name} is down" if state else f"{name} is not up on this machine"]
    purged = None
    try:
        if purge is not None:
            # The broker that `up` started has ended with it: start it again for the purge.
            known = None if state is None or ours else state.bootstrap
            kafka = reached(bootstrap or known)
            purged = purged_from(kafka, purge)
            lines.append(purged.text(name))
    finally:
        if state is not None and ours:
            stop_broker(directory)
    return state is not None, purged, "\n".join(lines)


def stop_broker(directory: Path) -> None:
    """Stop the local broker, or hand it over to another pipeline on this machine that uses it."""
    (directory / HANDED_OVER).unlink(missing_ok=True)
    other = other_run(directory)  # of this pipeline: it came first
    runs = [*neighbours(directory), *([] if other is None else [other])]
    running = broker.status()
    users = [run.pipeline for run in runs if running and uses(run.bootstrap, running.bootstrap)]
    if not users or running is None:
        broker.stop()
        return
    (directory.parent / users[0] / HANDED_OVER).write_text(str(running.pid))
    say(f"the local broker keeps running for {', '.join(users)}; it stops with {users[0]}")


def uses(bootstrap: str, local: str) -> bool:
    """Return whether one of the addresses (host:port,...) is of the local broker, whose own are
    ``local``; without an address it is."""
    ports = {address.rpartition(":")[2] for address in local.split(",")}
    named = (address.strip().rpartition(":") for address in bootstrap.split(","))
    return not bootstrap or any(host in LOOPBACK and port in ports for host, _, port in named)


def handed_over(directory: Path) -> bool:
    """Return whether an earlier run handed the running broker over to this run."""
    running = broker.status()
    try:
        handed = (directory / HANDED_OVER).read_text()
    except FileNotFoundError:
        return False
    return running is not None and handed == str(running.pid)
