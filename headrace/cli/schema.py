"""``headrace schema``: print the pipeline file's JSON Schema."""

import click

from headrace.terminal import print_text


@click.command()
def schema() -> None:
    """Print the JSON Schema of the pipeline file, for editors.

    An editor with a YAML language server completes and checks a file whose first line is
    `# yaml-language-server: $schema=pipeline.schema.json`.

    \b
    Example:
      headrace schema > pipeline.schema.json
    """
    import json

    from headrace.config.json_schema import json_schema

    print_text(json.dumps(json_schema(), indent=2))
