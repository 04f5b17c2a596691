"""Build Go programs for interop tests from the Go module proxy, which takes minutes the first time.

python -m tests.interop.go_programs          builds those that are missing, if there is a go

`make interop` runs this before the tests, because a test may take five minutes only.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.interop.environments import FOLDER
from tests.interop.missing_programs import missing

# The newest releases of which a public proxy had every module when the tests were written.
PROMTOOL, PROMETHEUS = "github.com/prometheus/prometheus/cmd/promtool", "v0.315.0"
KUBERNETES, KUBERNETES_VERSION = "k8s.io/kubernetes", "v1.34.2"
ETCD = "go.etcd.io/etcd/server/v3@v3.6.5"
BUILDER = "go.opentelemetry.io/collector/cmd/builder@v0.120.0"
# A collector that receives OTLP over HTTP and writes the received data into a file.
COLLECTOR = """\
dist: {{name: collector, output_path: {folder}}}
receivers: [{{gomod: go.opentelemetry.io/collector/receiver/otlpreceiver v0.120.0}}]
exporters:
  - gomod: github.com/open-telemetry/opentelemetry-collector-contrib/exporter/fileexporter v0.120.0
"""


def promtool() -> Path:
    """Return promtool, Prometheus' own checker of rules."""
    folder = FOLDER / "promtool"
    program = folder / "promtool"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "go.mod").write_text("module promtool\n")
        # `go install` refuses modules with replace directives, and this module has one.
        _go(folder, "get", f"{PROMTOOL}@{PROMETHEUS}")
        _go(folder, "build", "-o", str(program), PROMTOOL)
    return program


def collector() -> Path:
    """Return an OpenTelemetry collector."""
    folder = FOLDER / "collector"
    program = folder / "collector"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "builder.yaml"
        config.write_text(COLLECTOR.format(folder=folder))
        _go(folder, "run", BUILDER, "--config", str(config))
    return program


def kubernetes() -> Path:
    """Return the folder of ``kube-apiserver``, ``kubectl``, and ``etcd``, the server's store."""
    folder = FOLDER / "kubernetes-server"
    if not (folder / "etcd").exists():
        folder.mkdir(parents=True, exist_ok=True)
        described = json.loads(
            _go(folder, "mod", "download", "-json", f"{KUBERNETES}@{KUBERNETES_VERSION}")
        )
        # Its go.mod replaces its libraries by folders of its repository; they are modules, too.
        staged = re.findall(r"^\t(\S+) => \./staging", Path(described["GoMod"]).read_text(), re.M)
        libraries = "\n".join(f"\t{name} => {name} v0{KUBERNETES_VERSION[2:]}" for name in staged)
        needs = (
            f"go 1.24.0\n\nrequire {KUBERNETES} {KUBERNETES_VERSION}\n\nreplace (\n{libraries}\n)\n"
        )
        (folder / "go.mod").write_text(f"module cluster\n\n{needs}")
        for name in ("kube-apiserver", "kubectl"):
            _go(folder, "build", "-mod=mod", "-o", name, f"{KUBERNETES}/cmd/{name}")
        inner = folder / "etcd-module"
        inner.mkdir(exist_ok=True)
        (inner / "go.mod").write_text("module etcd\n")
        _go(inner, "get", ETCD)
        _go(inner, "build", "-o", str(folder / "etcd"), ETCD.partition("@")[0])
    return folder


def main() -> None:
    """Build every missing program. Without go, build nothing; the tests report the need."""
    if shutil.which("go") is not None:
        promtool()
        collector()
        kubernetes()


def _go(folder: Path, *arguments: str) -> str:
    """Run go in a folder without C, and return its output."""
    go = shutil.which("go")
    if go is None:
        missing("needs go, which builds the program")
    done = subprocess.run(
        [go, *arguments], capture_output=True, text=True, cwd=folder, check=False,
        env={**os.environ, "CGO_ENABLED": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


if __name__ == "__main__":
    main()
