"""A click group that lists commands by purpose and suggests a name for a misspelt one."""

from collections.abc import Sequence
from difflib import get_close_matches

import click

# Commands in none of these sections are listed under "More".
SECTIONS = {
    "Begin": ("init", "validate", "doctor", "demo", "schema", "completion"),
    "Plan and simulate": (
        "profile", "plan", "capacity", "schedule", "search", "simulate", "compare", "fidelity",
    ),
    "Run": ("up", "down", "broker", "acls"),
    "Use": ("send", "load", "gateway"),
    "Look": ("status", "logs", "explain", "report", "dead-letters"),
    "Steer": ("policy", "drain", "restore", "pause", "resume", "replan", "command"),
    "Roles, one process each": ("control", "ingress", "worker", "egress"),
}  # fmt: skip


class Grouped(click.Group):
    """A group whose help lists its commands in ``SECTIONS``."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write every section that has commands."""
        left = [name for name in self.list_commands(ctx) if not self.commands[name].hidden]
        for section, names in SECTIONS.items():
            own = [name for name in names if name in left]
            left = [name for name in left if name not in own]
            self._section(formatter, section, own)
        self._section(formatter, "More", left)

    def _section(self, formatter: click.HelpFormatter, title: str, names: Sequence[str]) -> None:
        if names:
            with formatter.section(title):
                formatter.write_dl([(n, self.commands[n].get_short_help_str(80)) for n in names])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command as click does; the error for an unknown one suggests a near name."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            near = get_close_matches(name, self.list_commands(ctx), n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {name!r}{hint}")
        return super().resolve_command(ctx, args)
