"""Environments for other projects' clients, whose requirements differ from ours and each other's.

python -m tests.interop.environments          makes those that are missing or out of date
"""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "build" / "interop"
# Newest releases with which the tests were run. reflection: the public client of grpcio's own.
REQUIREMENTS = {
    "triton": ("tritonclient[http,grpc]==2.73.0", "grpcio-reflection"),
    "kserve": ("kserve==0.21.0",),
    "kubernetes": ("kubernetes-validate==1.37.0",),
}


def python_of(name: str) -> Path:
    """Return the interpreter of an environment."""
    return FOLDER / name / "bin" / "python"


def main() -> None:
    """Make every environment that is missing or was made of other requirements."""
    for name, requirements in REQUIREMENTS.items():
        stamp, wanted = FOLDER / name / "requirements", "\n".join(requirements)
        if stamp.is_file() and stamp.read_text() == wanted:
            continue
        uv = (sys.executable, "-m", "uv")
        subprocess.run([*uv, "venv", "--quiet", "--clear", str(FOLDER / name)], check=True)
        install = ("pip", "install", "--quiet", "--python", str(python_of(name)))
        subprocess.run([*uv, *install, *requirements], check=True)
        stamp.write_text(wanted)


if __name__ == "__main__":
    main()
