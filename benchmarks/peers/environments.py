"""Environments of the peers, whose requirements differ from ours: one folder each, made once.

``requirements-NAME.txt`` beside this module pins every package.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / "build" / "peers"


def environment(name: str) -> Path:
    """Return the folder of programs of an environment; make it first if it is out of date."""
    folder, wanted = FOLDER / name, HERE / f"requirements-{name}.txt"
    stamp = folder / "requirements.txt"
    if not stamp.is_file() or stamp.read_text() != wanted.read_text():
        uv = (sys.executable, "-m", "uv")
        made = ("venv", "--quiet", "--clear", "--python", sys.executable, str(folder))
        subprocess.run([*uv, *made], check=True)
        install = ("pip", "install", "--quiet", "--python", str(folder / "bin" / "python"))
        subprocess.run([*uv, *install, "-r", str(wanted)], check=True)
        stamp.write_text(wanted.read_text())
    return folder / "bin"
