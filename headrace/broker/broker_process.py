"""The broker's processes: prepare its data, start it detached, know it again, end it."""

import atexit
import re
import shutil
import subprocess

import psutil

from headrace.broker.broker_home import Home
from streams.kafka.kafka_client import BrokerError

FORMAT_PATIENCE = 60.0  # seconds; 1 on an idle machine
STOP_PATIENCE = 20.0  # seconds from SIGTERM to SIGKILL

# The head of a stack trace, or what Java says before there is a log.
_REASON = re.compile(r"(Caused by: )?[\w.$]+(Exception|Error): |Error:? |Unrecognized ")

# A Popen that is dropped while its process lives complains; the broker is meant to live on.
_children: dict[int, subprocess.Popen[bytes]] = {}


@atexit.register
def _let_live() -> None:
    for child in _children.values():
        if child.poll() is None:
            child.returncode = 0  # nobody waits for it any more


def format_if_new(place: Home, command: list[str]) -> None:
    """Prepare the data directory unless it is. Raises BrokerError with the tool's last word."""
    if (place.data / "meta.properties").exists():
        return
    shutil.rmtree(place.data, ignore_errors=True)  # a format that was cut short
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
    """Start the broker apart from this terminal; its process number."""
    with place.console.open("wb") as console:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            cwd=place.path,
            start_new_session=True,  # Ctrl-C in this terminal is not meant for it
        )
    _children[child.pid] = child
    return child.pid


def is_ours(pid: int, place: Home) -> bool:
    """A process number is used again; the path of this home on its command line is not."""
    try:
        return str(place.server_properties) in psutil.Process(pid).cmdline()
    except psutil.Error:
        return False


def death_of(place: Home) -> BrokerError:
    """What to raise when the broker ended while it was starting: its last error, its last line."""
    lines = [
        line.strip()
        for file in (place.log, place.console)
        if file.exists()
        for line in file.read_text(errors="replace").splitlines()
        if line.strip() and not line.startswith("\tat ")
    ]
    # After the error that matters the broker still logs how it shuts down.
    errors = [line for line in lines if _REASON.match(line)]
    last = (errors or lines or ["it printed nothing"])[-1]
    return BrokerError(
        f"the local broker ended while it was starting; its last word was {last[:300]!r}; "
        f"the whole story is in {place.log} and {place.console}"
    )


def end(pid: int) -> None:
    """SIGTERM, and SIGKILL to one that is still there after 20 s; returns when it is gone."""
    try:
        process = psutil.Process(pid)
        process.terminate()
        try:
            process.wait(STOP_PATIENCE)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(STOP_PATIENCE)
    except psutil.NoSuchProcess:
        pass
    child = _children.pop(pid, None)
    if child is not None:
        child.wait()
