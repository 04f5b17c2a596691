"""``headrace acls``: print the least ACLs of each role."""

from pathlib import Path

import click

from headrace.cli.shared_options import json_option, pipeline_argument, read_file
from headrace.terminal import print_json, print_text


@click.command()
@pipeline_argument
@click.option(
    "--principal-prefix",
    "prefix",
    metavar="PREFIX",
    help="Users are called PREFIX and the role; without it <pipeline>- and the role.",
)
@json_option
def acls(file: Path, prefix: str | None, as_json: bool) -> None:
    """Print the least ACLs of each role, as lines for kafka-acls.

    Roles: ingress, worker, egress and control are processes; producer and consumer are your
    programs; operator is the person who runs `up`, `status` and commands; purger may delete the
    pipeline's topics.

    \b
    Example:
      headrace acls examples/postcode/pipeline.yaml --principal-prefix ml-
    """
    from headrace.cluster.acl_lines import acl_lines, acl_rows, principals

    pipeline = read_file(file).pipeline
    named = principals(pipeline, prefix)
    if as_json:
        print_json(acl_rows(pipeline, named))
    else:
        print_text("\n".join(acl_lines(pipeline, named)))
