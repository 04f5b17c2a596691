"""Manifests for Kubernetes."""

from pathlib import Path

import click

from headrace.cli.shared_options import pipeline_argument, read_deployed
from headrace.terminal import print_text


@click.command()
@pipeline_argument
@click.option("--image", default="headrace:local", show_default=True, help="Of all roles.")
@click.option("--worker-image", help="Of workers, if theirs is another: with torch, say.")
@click.option("--bootstrap", default="kafka:9092", show_default=True, help="Brokers, for pods.")
@click.option("--namespace", default="default", show_default=True, help="Of all objects.")
@click.option("--claim", default="", help="PersistentVolumeClaim with the pipeline's folder.")
@click.option("--strimzi", default="", help="Make topics and users for this cluster of Strimzi.")
@click.option("--pod-monitor", is_flag=True, help="Add a PodMonitor, for Prometheus' operator.")
def kubernetes(
    file: Path,
    image: str,
    worker_image: str | None,
    bootstrap: str,
    namespace: str,
    claim: str,
    strimzi: str,
    pod_monitor: bool,
) -> None:
    """Print the manifests of a pipeline for Kubernetes.

    One Deployment for each process of control, ingress and egress, a StatefulSet for the workers of
    each device, the gateway with its Service, budgets for evictions. Without --claim the folder is
    a ConfigMap of 1 MB at most.

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
    )
    read = read_deployed(file)
    files = {} if claim else folder_files(read)
    print_text(manifest_text(manifests(read, files, options)).rstrip())
