"""The broker's processes: format the data directory, start detached, identify, end."""

import atexit
import contextlib
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable

import psutil

from headrace.broker.broker_home import Home
from streams.kafka.kafka_errors import BrokerError

FORMAT_PATIENCE = 60.0  # seconds; 1 on an idle machine
STOP_PATIENCE = 20.0  # seconds from SIGTERM to SIGKILL

# The head of a stack trace, or the output of Java before logging starts.
_REASON = re.compile(r"(Caused by: )?[\w.$]+(Exception|Error): |Error:? |Unrecognized ")

# Popen warns if it is deleted while its process runs; the broker outlives this process.
_children: dict[int, subprocess.Popen[bytes]] = {}


@atexit.register
def _let_live() -> None:
    for child in _children.values():
        if child.poll() is None:
            child.returncode = 0  # suppresses the warning


def format_if_new(place: Home, command: list[str]) -> None:
    """Format the data directory unless it is formatted.

    Raises BrokerError with the tool's last line.
    """
    if (place.data / "meta.properties").exists():
        return
    shutil.rmtree(place.data, ignore_errors=True)  # left by an interrupted format
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_PATIENCE)
    except subprocess.TimeoutExpired:
        raise BrokerError(
            f"the local broker's data directory {place.data} was not prepared within "
            f"{FORMAT_PATIENCE:.0f} s; try again when the machine is less busy"
        ) from None
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["it printed nothing"]
        raise BrokerError(
            f"the local broker's data directory {place.data} could not be prepared: {lines[-1]}; "
            "check that the disk is writable and not full"
        )


def spawn(place: Home, command: list[str]) -> int:
    """Start the broker in its own session; return its process id."""
    with place.console.open("wb") as console:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            cwd=place.path,
            start_new_session=True,  # so that Ctrl-C in this terminal does not reach it
        )
    _children[child.pid] = child
    return child.pid


def is_ours(pid: int, place: Home) -> bool:
    """Return whether the process is the broker of this home, by its command line.

    The process id alone does not suffice: the operating system reuses it.
    """
    try:
        return str(place.server_properties) in psutil.Process(pid).cmdline()
    except psutil.Error:
        return False


def death_of(place: Home) -> BrokerError:
    """Return the error for a broker that ended during start-up, with its last logged error or
    else its last line."""
    lines = [
        line.strip()
        for file in (place.log, place.console)
        if file.exists()
        for line in file.read_text(errors="replace").splitlines()
        if line.strip() and not line.startswith("\tat ")
    ]
    # The broker logs its shutdown after the error that caused it.
    errors = [line for line in lines if _REASON.match(line)]
    last = (errors or lines or ["it printed nothing"])[-1]
    return BrokerError(
        f"the local broker ended while it was starting; its last word was {last[:300]!r}; "
        f"the whole story is in {place.log} and {place.console}"
    )


def end_all(pids: Iterable[int]) -> None:
    """End processes: SIGTERM to all, then SIGKILL after 20 s; return once they have ended."""
    there = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            process.terminate()
            process.send_signal(signal.SIGCONT)  # a frozen one would wait for SIGKILL
            there.append(process)
    _, left = psutil.wait_procs(there, STOP_PATIENCE)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, STOP_PATIENCE)
    for process in there:
        child = _children.pop(process.pid, None)
        if child is not None:
            child.wait()
