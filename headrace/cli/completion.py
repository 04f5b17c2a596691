"""``headrace completion``: print a shell's completion script."""

import click

from headrace.terminal import print_text

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
