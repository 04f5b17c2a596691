"""Copy the source twice: as pure Python, and with the hot modules compiled (setup.py).

Both are copies, so that compiled modules in the working tree have no influence.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPIED = ("benchmarks", "control", "headrace", "operators", "profiles", "schemas", "streams")
BUILD = ("setup.py", "pyproject.toml", "README.md", "LICENSE")


class NotCompiled(RuntimeError):
    """Raised if this machine cannot compile; the message names the reason."""


def pure_copy(folder: Path) -> Path:
    """Copy the source to ``folder``."""
    for package in COPIED:
        ignored = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    for name in BUILD:
        shutil.copy2(ROOT / name, folder)
    return folder


def compiled_copy(folder: Path, optimised: int) -> Path:
    """Copy the source to ``folder`` and compile it at level ``optimised`` (0 to 3).

    Raises ``NotCompiled`` if the compilation fails."""
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    done = subprocess.run(
        command, cwd=pure_copy(folder), env={**os.environ, "HEADRACE_COMPILE": str(optimised)},
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise NotCompiled((done.stderr.strip() or done.stdout.strip()).splitlines()[-1])
    return folder


def printed(copy: Path, *command: str) -> str:
    """Run Python with ``command`` and the modules of a copy; return its standard output.

    Raises ``RuntimeError`` if it fails."""
    paths = os.pathsep.join((str(copy), str(ROOT)))
    # One thread for linear algebra, as in `headrace simulate`: further threads would busy-wait.
    environment = {**os.environ, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *command], cwd=copy, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout
