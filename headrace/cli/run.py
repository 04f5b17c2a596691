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
from headrace.roles.log_options import log_options, metrics_option
from headrace.terminal import print_json, print_rich, print_text

if TYPE_CHECKING:
    from headrace.doctor.findings import Finding


@click.command()
@pipeline_argument
@json_option
def validate(file: Path, as_json: bool) -> int:
    """Check a pipeline file, and that all it names can be loaded here.

    Exit code 2: an error in the file; 3: a policy needs more workers than the cluster has.

    \b
    Example:
      headrace validate examples/postcode/pipeline.yaml
    """
    from headrace.config.validation import described
    from headrace.planning.mix_validation import examined_with_mix

    found = examined_with_mix(read_file(file))
    print_json(found.as_json()) if as_json else print_text(described(found))
    return INFEASIBLE if found.infeasible else 0


@click.command()
@pipeline_argument
@bootstrap_option
@json_option
@click.option("--detach", is_flag=True, help="Return once it is up; `headrace down FILE` ends it.")
@log_options
@metrics_option("First of the ports that serve the roles' metrics; 0: any free ones.")
def up(
    file: Path,
    bootstrap: str | None,
    as_json: bool,
    detach: bool,
    metrics_port: int | None,
) -> int:
    """Run a whole pipeline on this machine.

    Control app, ingress, workers and egress, each a process with its own log. Ends with Ctrl-C or
    `headrace down`; a role that dies is restarted.

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
@click.option("--purge", is_flag=True, help="Also delete all that the broker holds of it.")
@json_option
def down(file: Path, bootstrap: str | None, purge: bool, as_json: bool) -> None:
    """End the pipeline that `headrace up` runs on this machine.

    Queries in flight are finished first. The broker keeps running, unless `up` started it. With
    --purge the pipeline's topics, offsets and plans are deleted; the local broker is started for
    that if necessary.

    \b
    Example:
      headrace down examples/postcode/pipeline.yaml
    """
    from headrace.cluster.up import down_from_here

    ended, purged, text = down_from_here(read_file(file), bootstrap, purge=purge)
    row = {"was_up": ended} | ({"purged": purged.as_json()} if purged else {})
    print_json(row) if as_json else print_text(text)


STYLES = {"ok": "green", "warn": "yellow", "wrong": "bold red"}


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@bootstrap_option
@json_option
def doctor(file: Path | None, bootstrap: str | None, as_json: bool) -> int:
    """Check this machine, the broker and a pipeline; name the remedies.

    Python, extras, Java, disk, the broker's release and clock; with FILE also the pipeline file,
    its topics and this user's rights on them. Starts nothing. Exit code 0 if nothing is wrong,
    4 without a broker, 2 for an invalid file, else 1.

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
@click.option("--image", default="headrace:local", show_default=True, help="Of all roles.")
@click.option("--worker-image", help="Of workers, if theirs is another: with torch, say.")
@click.option("--bootstrap", default="kafka:9092", show_default=True, help="Brokers, for pods.")
@click.option("--namespace", default="default", show_default=True, help="Of all objects.")
@click.option("--claim", default="", help="PersistentVolumeClaim with the pipeline's folder.")
@click.option("--strimzi", default="", help="Make topics and users for this cluster of Strimzi.")
@click.option("--keda", default="", help="Prometheus' address: add KEDA's ScaledObjects.")
@click.option("--gateway-tokens", default="", help="Secret with the gateway's bearer tokens.")
@click.option("--gateway-tls", default="", help="Secret with its certificate (tls.crt, tls.key).")
@click.option("--pod-monitor", is_flag=True, help="Add a PodMonitor, for Prometheus' operator.")
def kubernetes(
    file: Path,
    image: str,
    worker_image: str | None,
    bootstrap: str,
    namespace: str,
    claim: str,
    strimzi: str,
    keda: str,
    gateway_tokens: str,
    gateway_tls: str,
    pod_monitor: bool,
) -> None:
    """Print the manifests of a pipeline for Kubernetes.

    One Deployment for each process of control, ingress and egress, a StatefulSet for the workers of
    each device, the gateway with its Service, the dashboard, budgets for evictions. Without --claim
    the folder is a ConfigMap of 1 MB at most. A secret of --gateway-tokens has the key `tokens`,
    one token a line. With --keda the workers of each device type are as many as the control app
    wants (cluster.scale).

    \b
    Example:
      headrace kubernetes pipeline.yaml --image registry/headrace:1 | kubectl apply -f -
    """
    from headrace.kubernetes.folder import folder_files
    from headrace.kubernetes.manifests import manifest_text, manifests
    from headrace.kubernetes.pods import KubernetesOptions

    options = KubernetesOptions(
        image=image,
        worker_image=worker_image or image,
        bootstrap=bootstrap,
        namespace=namespace,
        claim=claim,
        strimzi=strimzi,
        pod_monitor=pod_monitor,
        keda=keda,
        gateway_tokens=gateway_tokens,
        gateway_tls=gateway_tls,
    )
    read = read_deployed(file)
    files = {} if claim else folder_files(read)
    print_text(manifest_text(manifests(read, files, options)).rstrip())
