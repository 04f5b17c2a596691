"""Build Go programs for interop tests from the Go module proxy, which takes minutes the first time.

python -m tests.interop.go_programs          builds those that are missing, if there is a go

`make interop` runs this before the tests, because a test may take five minutes only.
"""

import shutil
import subprocess
from pathlib import Path

from tests.interop.environments import FOLDER
from tests.interop.missing_programs import missing

# The newest releases of which a public proxy had every module when the tests were written.
PROMTOOL, PROMETHEUS = "github.com/prometheus/prometheus/cmd/promtool", "v0.315.0"
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


def main() -> None:
    """Build every missing program. Without go, build nothing; the tests report the need."""
    if shutil.which("go") is not None:
        promtool()
        collector()


def _go(folder: Path, *arguments: str) -> None:
    go = shutil.which("go")
    if go is None:
        missing("needs go, which builds the program")
    done = subprocess.run([go, *arguments], capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


if __name__ == "__main__":
    main()
