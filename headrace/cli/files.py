"""Commands that print or write files: ``init``, ``resolve``, ``schema`` and ``completion``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote

import click

from headrace.cli.shared_options import json_option, pipeline_argument
from headrace.errors import UNSUCCESSFUL
from headrace.terminal import print_json, print_text


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--name", default="", help="Name of the pipeline. Default: the folder's.")
@json_option
def init(folder: Path, name: str, as_json: bool) -> None:
    """Write a starter pipeline that runs as is; overwrite nothing.

    \b
    Example:
      headrace init reviews
      headrace up reviews/pipeline.yaml
    """
    from headrace.starter.starter_files import starter_files, starter_names, write_starter

    names = starter_names(folder.resolve().name, name)
    written = write_starter(folder, starter_files(names))
    if as_json:
        print_json({"pipeline": names.pipeline, "files": [str(path) for path in written]})
        return
    listed = "\n".join(f"  {path}" for path in written)
    print_text(f"pipeline {names.pipeline}:\n{listed}\nnext: headrace up {quote(str(written[0]))}")


@click.command()
@pipeline_argument
@click.option("--check", is_flag=True, help="Write nothing; exit code 1 if a version has changed.")
@json_option
def resolve(file: Path, check: bool, as_json: bool) -> int:
    """Pin the models that a pipeline file references in registries.

    References are `models:/reader@champion` (MLflow, at MLFLOW_TRACKING_URI) and
    `hf://org/name@revision` (the Hugging Face hub). The command writes versions and SHA-256 to
    pipeline.lock, and the files to pipeline.models. No other command contacts a model
    registry.

    \b
    Example:
      headrace resolve reviews/pipeline.yaml
    """
    import os

    from headrace.atomic_file import write_whole
    from headrace.config.locked_models import references_in
    from headrace.model_registry.lock_file import lock_path, lock_text, read_lock
    from headrace.model_registry.resolving import current_versions, resolved

    path = file.resolve()
    references, lock = references_in(path), lock_path(path)
    before = {text: model.version for text, model in read_lock(lock).items()}
    if check:
        now = current_versions(references, os.environ)
    else:
        models = resolved(references, path, os.environ)
        if models:
            write_whole(lock, lock_text(models))
        now = {model.reference: model.version for model in models}
    rows = [{"reference": r, "version": v, "before": before.get(r)} for r, v in now.items()]
    print_json(rows) if as_json else print_text(_versions_text(rows))
    moved = any(before.get(reference) != version for reference, version in now.items())
    return UNSUCCESSFUL if check and moved else 0


def _versions_text(rows: Sequence[Mapping[str, str | None]]) -> str:
    if not rows:
        return "the file names no models in registries; there is nothing to resolve"
    return "\n".join(
        f"{row['reference']}  version {row['version']}"
        + (f" (locked: {row['before'] or 'none'})" if row["before"] != row["version"] else "")
        for row in rows
    )


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
    """Print the script for shell completion of commands and options.

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
