"""Faults of the machine under a role or the broker: a wall clock that steps, a full disk.

Both have requirements that not every machine meets: Debian's libfaketime and a C compiler, and the
right to mount a tmpfs. A missing requirement is reported, and the kind is then not drawn.
"""

import errno
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.chaos_faults import start_lost_nodes, stopped
from benchmarks.fault_scene import Fault, Scene
from benchmarks.rig import Stuck
from headrace.broker import local_broker as local

STEP_S = 5.0
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
WAITS = Path(__file__).with_name("faketime_waits.c")  # libfaketime fakes no waits of the client
COMPILER = "cc"
DISK_BYTES = 1_500_000_000  # an hour of chaos writes 500 MB
FULL = "fill"  # the file that fills the disk, in the broker's home
BROKER_ENDS_WITHIN_S = 10.0


def no_faketime() -> str:
    """Return the reason that no clock can be stepped, or ""."""
    if not FAKETIME.is_file():
        return "libfaketime is missing: apt-get install faketime"
    if shutil.which(COMPILER) is None:
        return "a C compiler is missing: apt-get install gcc libc6-dev"
    return ""


def no_small_disk() -> str:
    """Return the reason that no disk can be filled, or ""."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return "only root may mount the small disk that this fault fills"
    return ""


# ---------------------------------------------------------------------- clocks


def clock_stepped(scene: Scene, fault: Fault) -> float:
    """Step a role's wall clock by 5 s, forward and backward in turn, and back after a while.

    The role is restarted under libfaketime first, which reads the offset from a file; its
    monotonic clock goes on. Return when the clock stepped.
    """
    rig, own = scene.rig, scene.rig.variables
    waits = _faked_waits(rig.folder)
    for name in fault.targets:
        offset = rig.folder / f"{name}.clock"
        offset.write_text("+0")
        stopped(rig, name)
        rig.variables = {**own, **_under_faketime(offset, waits)}
        rig.start(name)
        rig.variables = own
        rig.until(rig.serves, f"{name} to be back")
        since_s = time.time()
        rig.until(partial(rig.answers.well_since, since_s), "all to be well before the step")
        sign = "+-"[scene.hits[fault.kind] % 2]
        scene.hits[fault.kind] += 1
        offset.write_text(f"{sign}{STEP_S:g}")
        began_s = time.time()
        rig.pass_time(fault.seconds)
        offset.write_text("+0")
        scene.returns_s.append(time.time())
    return began_s


def _faked_waits(folder: Path) -> Path:
    """Return the library of ``WAITS``; compile it if the folder has none."""
    library = folder / "faketime_waits.so"
    if not library.is_file():
        subprocess.run(
            [COMPILER, "-shared", "-fPIC", "-O1", "-o", str(library), str(WAITS)], check=True
        )
    return library


def _under_faketime(offset: Path, waits: Path) -> Mapping[str, str]:
    return {
        "LD_PRELOAD": f"{waits}:{FAKETIME}",
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_CACHE_DURATION": "1",  # seconds between two looks at the file
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


# ---------------------------------------------------------------------- disks


@contextmanager
def small_disk(home: Path) -> Iterator[None]:
    """Turn a folder into a separate disk, of ``DISK_BYTES`` of memory, during the block."""
    home.mkdir(parents=True)
    size = f"size={DISK_BYTES}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(home)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(home)], check=True)


def disk_full(scene: Scene, fault: Fault) -> float:
    """Fill the broker's disk, make room again after a while, and start the broker if it has ended.

    Return when there was room again and the broker ran.
    """
    filler = scene.broker_home / FULL
    free = shutil.disk_usage(scene.broker_home).free
    filling = scene.beside.submit(_fill, filler, free)
    scene.rig.until(filling.done, "the disk to be full")
    filling.result()
    ended_by_s = time.monotonic() + BROKER_ENDS_WITHIN_S
    scene.rig.until(
        lambda: local.status(scene.broker_home) is None or time.monotonic() > ended_by_s,
        "the broker to notice", BROKER_ENDS_WITHIN_S + 10.0,
    )  # fmt: skip
    scene.rig.pass_time(fault.seconds)
    filler.unlink()
    start_lost_nodes(scene)
    return time.time()


def _fill(path: Path, free: int) -> None:
    """Write a file until nothing more fits; first most of it at once."""
    with path.open("wb", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, max(1, free - (16 << 20)))
        file.seek(0, os.SEEK_END)
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise Stuck(f"the disk could not be filled: {error}") from error
