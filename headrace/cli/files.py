"""Commands that print or write files: ``init``, ``schema`` and ``completion``."""

from pathlib import Path

import click

from headrace.cli.shared_options import json_option
from headrace.terminal import print_json, print_text


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--name", default="", help="The pipeline's name. Without it the folder's.")
@json_option
def init(folder: Path, name: str, as_json: bool) -> None:
    """Write a starter pipeline that runs unchanged; overwrites nothing.

    \b
    Example:
      headrace init reviews
      headrace up reviews/pipeline.yaml
    """
    from headrace.config.scaffold import starter_files, starter_names, write_starter

    names = starter_names(folder.resolve().name, name)
    written = write_starter(folder, starter_files(names))
    if as_json:
        print_json({"pipeline": names.pipeline, "files": [str(path) for path in written]})
        return
    listed = "\n".join(f"  {path}" for path in written)
    print_text(f"pipeline {names.pipeline}:\n{listed}\nnext: headrace up {written[0]}")


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


SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands and options in a shell.

    \b
    Example:
      headrace completion bash > ~/.local/share/bash-completion/completions/headrace
      headrace completion zsh > ~/.zfunc/_headrace
      headrace completion fish > ~/.config/fish/completions/headrace.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    # The shell calls `headrace` with this variable set; `headrace` returns the completions.
    made = kind(context.find_root().command, {}, "headrace", "_HEADRACE_COMPLETE")
    print_text((made.source_template % made.source_vars()).strip())
