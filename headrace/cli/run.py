"""``headrace validate``, ``doctor``, ``up``, ``down``, ``kubernetes``: check and run a pipeline."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.shared_options import (
    bootstrap_option,
    json_option,
    pipeline_argument,
    read_deployed,
    read_file,
)
from headrace.errors import INFEASIBLE
from headrace.roles.observability.log_options import log_options, metrics_option
from headrace.terminal import print_json, print_rich, print_text

if TYPE_CHECKING:
    from headrace.doctor.findings import Finding


@click.command()
@pipeline_argument
@json_option
def validate(file: Path, as_json: bool) -> int:
    """Check a pipeline file and load everything that it names.

    Exit codes: 2, the file has an error; 3, a policy needs more than the cluster has.

    \b
    Example:
      headrace validate examples/postcode/pipeline.yaml
    """
    from headrace.config.validation import summary_text
    from headrace.planning.mix_validation import examined_with_mix

    found = examined_with_mix(read_file(file))
    print_json(found.as_json()) if as_json else print_text(summary_text(found))
    return INFEASIBLE if found.infeasible else 0


@click.command()
@pipeline_argument
@bootstrap_option
@json_option
@click.option("--detach", is_flag=True, help="Return once it is up; `headrace down FILE` ends it.")
@log_options
@metrics_option("First port for metrics; every role has its own. 0: any free ports.")
def up(
    file: Path,
    bootstrap: str | None,
    as_json: bool,
    detach: bool,
    metrics_port: int | None,
) -> int:
    """Run a whole pipeline on this machine.

    The control app, ingress, workers and egress are processes, each with its own log. A role that
    dies is restarted. Ctrl-C or `headrace down` ends the pipeline.

    \b
    Example:
      headrace up examples/postcode/pipeline.yaml --detach
    """
    from headrace.cluster.up import up_attached, up_detached, with_metrics

    start = up_detached if detach else up_attached
    return start(with_metrics(read_deployed(file), metrics_port), bootstrap, as_json=as_json)


@click.command()
@pipeline_argument
@bootstrap_option
@click.option("--purge", is_flag=True, help="Also delete its data on the broker.")
@json_option
def down(file: Path, bootstrap: str | None, purge: bool, as_json: bool) -> None:
    """End the pipeline that `headrace up` runs on this machine.

    Queries in flight are finished first. The broker keeps running unless `up` started it. --purge
    deletes the pipeline's topics, offsets and plans, and starts the local broker for that if
    necessary.

    \b
    Example:
      headrace down examples/postcode/pipeline.yaml
    """
    from headrace.cluster.running_file import named_pipeline
    from headrace.cluster.up import down_from_here

    whole = read_file(file).pipeline if purge else None
    ended, purged, text = down_from_here(named_pipeline(file).name, bootstrap, whole)
    row = {"was_up": ended} | ({"purged": purged.as_json()} if purged else {})
    print_json(row) if as_json else print_text(text)


STYLES = {"ok": "green", "warn": "yellow", "wrong": "bold red"}


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@bootstrap_option
@json_option
def doctor(file: Path | None, bootstrap: str | None, as_json: bool) -> int:
    """Check this machine, the broker and a pipeline; suggest remedies.

    The command checks Python, extras, Java, disk, and the broker's release and clock. With FILE it
    also checks the pipeline file, its topics and this user's rights on them. It starts nothing.
    Exit code 0 if nothing is wrong, 4 without a broker, 2 for an invalid file, else 1.

    \b
    Example:
      headrace doctor pipeline.yaml
      headrace doctor --bootstrap kafka-1:9092 --json
    """
    from headrace.doctor.facts import findings
    from headrace.doctor.findings import as_json as all_as_json
    from headrace.doctor.findings import verdict

    made = []
    for finding in findings(file, bootstrap):
        made.append(finding)
        if not as_json:
            print_rich(_row(finding))
    if as_json:
        print_json(all_as_json(made))
    return verdict(made)


def _row(finding: "Finding") -> Any:
    """Return one finding as a table, printed at once; long findings wrap in their column."""
    from rich.table import Table
    from rich.text import Text

    row = Table.grid(padding=(0, 1))
    for width in (5, 14, None):
        row.add_column(width=width)
    found = Text(finding.found + (f"\n-> {finding.mend}" if finding.mend else ""))
    row.add_row(Text(finding.state, style=STYLES[finding.state]), finding.what, found)
    return row


@click.command()
@pipeline_argument
@click.option("--image", default="headrace:local", show_default=True, help="Image of all roles.")
@click.option("--worker-image", help="Image of workers, profilers and scorer, as with torch.")
@click.option("--bootstrap", default="kafka:9092", show_default=True, help="Brokers for pods.")
@click.option("--namespace", default="default", show_default=True, help="For all objects.")
@click.option("--claim", default="", help="PersistentVolumeClaim with the pipeline's folder.")
@click.option("--strimzi", default="", help="Add topics and users for this Strimzi cluster.")
@click.option("--keda", default="", help="Prometheus' address: add KEDA's ScaledObjects.")
@click.option("--gateway-tokens", default="", help="Secret with the gateway's bearer tokens.")
@click.option("--gateway-tls", default="", help="Secret with its certificate (tls.crt, tls.key).")
@click.option("--pod-monitor", is_flag=True, help="Add a PodMonitor for the Prometheus operator.")
@click.option("--keep-replicas", is_flag=True, help="Leave out numbers of workers and gateways.")
def kubernetes(file: Path, **asked: Any) -> None:
    """Print the Kubernetes manifests of a pipeline.

    The manifests have a Deployment for each process of control, ingress and egress, a StatefulSet
    for the workers of each device, the gateway with its Service, the dashboard, and
    PodDisruptionBudgets. Without --claim the pipeline's folder is a ConfigMap of 260 kB at most.
    The secret of --gateway-tokens has the key `tokens`, one token per line. With --keda the number
    of workers of each device type follows the control app (cluster.scale), and no manifest has it.
    --keep-replicas leaves out the numbers of all workers and of the gateway, so that `kubectl
    apply` does not undo `kubectl scale` or an autoscaler.

    \b
    Example:
      headrace kubernetes pipeline.yaml --image registry/headrace:1 | kubectl apply -f -
    """
    from headrace.kubernetes.folder import folder_files
    from headrace.kubernetes.manifests import manifest_text, manifests
    from headrace.kubernetes.pods import KubernetesOptions

    options = KubernetesOptions(**asked)
    read = read_deployed(file)
    files = {} if options.claim else folder_files(read)
    print_text(manifest_text(manifests(read, files, options)).rstrip())
