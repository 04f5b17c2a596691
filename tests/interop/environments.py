"""Create environments for other projects' clients and servers, whose requirements differ from
Headrace's and from each other's.

python -m tests.interop.environments          makes missing or outdated ones
"""

import subprocess
import sys
import sysconfig
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "build" / "interop"
# The newest releases with which the tests were run. reflection: grpcio's own public client.
REQUIREMENTS = {
    "triton": ("tritonclient[http,grpc]==2.73.0", "grpcio-reflection"),
    "kserve": ("kserve==0.21.0",),
    "locust": ("locust==2.47.0",),
    "kubernetes": ("kubernetes-validate==1.37.0",),
    "mlflow": ("mlflow==3.17.2", "onnx==1.23.2", "onnxruntime==1.32.0"),
    "browser": ("playwright==1.65.2",),  # it drives the system's chromium
    "pytriton": ("nvidia-pytriton==0.7.0", "numpy<2", "setuptools<81"),
    # Packages of transformers[serving] that Headrace's environment, whose torch it uses, lacks.
    "transformers": (
        "accelerate", "annotated-doc", "distro", "fastapi", "jiter", "openai>=1.98",
        "opentelemetry-api", "sniffio", "starlette", "uvicorn",
    ),
}  # fmt: skip
ON_TOP_OF_OURS = frozenset(("transformers",))


def python_of(name: str) -> Path:
    """Return the interpreter of an environment."""
    return FOLDER / name / "bin" / "python"


def main() -> None:
    """Create every environment that is missing or has other requirements."""
    for name, requirements in REQUIREMENTS.items():
        stamp, wanted = FOLDER / name / "requirements", "\n".join(requirements)
        if stamp.is_file() and stamp.read_text() == wanted:
            continue
        uv = (sys.executable, "-m", "uv")
        made = ("venv", "--quiet", "--clear", "--python", sys.executable, str(FOLDER / name))
        subprocess.run([*uv, *made], check=True)
        install = ["pip", "install", "--quiet", "--python", str(python_of(name))]
        if name in ON_TOP_OF_OURS:
            install.append("--no-deps")
            _site_packages(name).joinpath("ours.pth").write_text(sysconfig.get_path("purelib"))
        subprocess.run([*uv, *install, *requirements], check=True)
        stamp.write_text(wanted)


def _site_packages(name: str) -> Path:
    return next((FOLDER / name / "lib").glob("python*/site-packages"))


if __name__ == "__main__":
    main()
