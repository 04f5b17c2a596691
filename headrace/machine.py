"""Describe this machine: processor, cores, free ports, Python version."""

import os
import platform
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

MPS_PIPES = "/tmp/nvidia-mps"  # where NVIDIA puts them


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_port() -> int:
    """Return a port of 127.0.0.1 that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def cpu_model() -> str:
    """Return the processor's name as the operating system reports it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def machine() -> str:
    """Return processor, cores and Python version as one line."""
    return f"{cpu_model()}, {cores()} cores, Python {platform.python_version()}"


def runs_mps(env: Mapping[str, str] = os.environ) -> bool:
    """Return whether NVIDIA's Multi-Process Service has its pipe on this machine."""
    return (Path(env.get("CUDA_MPS_PIPE_DIRECTORY") or MPS_PIPES) / "control").exists()
