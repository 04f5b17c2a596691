"""A group of commands whose error for an unknown command suggests a near name."""

from difflib import get_close_matches

import click


class Suggesting(click.Group):
    """A group that names the nearest command in the error for an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command as click does."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            near = get_close_matches(name, self.list_commands(ctx), n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {name!r}{hint}")
        return super().resolve_command(ctx, args)
