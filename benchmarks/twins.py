"""The same source twice: as it is, and with what a query passes through compiled (setup.py).

Both are copies, so it plays no part whether the tree that one works in is compiled.
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
    """This machine cannot compile; the message says what it lacks."""


def pure_copy(folder: Path) -> Path:
    """The source under ``folder``."""
    for package in COPIED:
        ignored = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    for name in BUILD:
        shutil.copy2(ROOT / name, folder)
    return folder


def compiled_copy(folder: Path, optimised: int) -> Path:
    """The source under ``folder``, compiled there, so much (0 to 3). Raises ``NotCompiled``."""
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    done = subprocess.run(
        command, cwd=pure_copy(folder), env={**os.environ, "HEADRACE_COMPILE": str(optimised)},
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise NotCompiled((done.stderr.strip() or done.stdout.strip()).splitlines()[-1])
    return folder


def printed(copy: Path, *command: str) -> str:
    """What Python prints when it runs ``command`` with the modules of a copy."""
    paths = os.pathsep.join((str(copy), str(ROOT)))
    # One thread for linear algebra, as `headrace simulate` has it: others would spin beside it.
    environment = {**os.environ, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *command], cwd=copy, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout
