"""Start servers of other projects for tests."""

import itertools
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from operators.models.model_errors import BadOperator
from tests.interop.environments import python_of
from tests.interop.tiny_model import make_tiny_model

HERE = Path(__file__).parent
STARTS_WITHIN_S = 180.0


def wait_until_up(url: str, running: subprocess.Popen[bytes], log: Path, within_s: float) -> None:
    """Wait until a URL answers; fail with the end of the log if the server ends or starts too
    late."""
    until = time.monotonic() + within_s
    for attempt in itertools.count():
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:  # refused, reset, or too slow to answer
            assert running.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < until, log.read_text()[-2000:]
            time.sleep(min(0.1 * 2**attempt, 1.0))


def free_ports(count: int) -> list[int]:
    """Return ports that are free now; they are reserved together, so that they differ."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


@contextmanager
def running(
    name: str, arguments: Sequence[object], log: Path, **env: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a server in the environment of that name, and end all of its processes afterwards."""
    python = python_of(name)
    assert python.exists(), f"{python} is not there; `make interop` makes it"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [python, *map(str, arguments)], stdout=out, stderr=out, env={**os.environ, **env},
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    except BadOperator as error:
        raise AssertionError(f"{error}\n{log.read_text()[-4000:]}") from error
    finally:
        end(process, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            end(process, signal.SIGKILL)
            process.wait()


def end(process: "subprocess.Popen[bytes]", by: signal.Signals) -> None:
    """End a server and all its processes by a signal."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, by)


@contextmanager
def a_triton(folder: Path, ports: Sequence[int]) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a Triton with its models in an empty folder, on ports for HTTP, gRPC and metrics."""
    with running(
        "pytriton", (HERE / "triton_server.py", folder, *ports), folder / "log"
    ) as process:
        yield process


@contextmanager
def a_transformers(folder: Path, port: int) -> Iterator["tuple[subprocess.Popen[bytes], str]"]:
    """Run ``transformers serve`` with a model that is made in a folder; yield the process and the
    name."""
    make_tiny_model(folder / "tiny")
    code = "from transformers.cli.transformers import main; main()"
    serve = ("serve", folder / "tiny", "--host", "127.0.0.1", "--port", port, "--device", "cpu")
    with running(
        "transformers", ("-c", code, *serve), folder / "log", HF_HUB_OFFLINE="1"
    ) as process:
        yield process, str(folder / "tiny")
