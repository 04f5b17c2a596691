"""The command line: register every command and map errors to exit codes.

Help lists the commands by purpose. Command modules import heavy modules inside functions, so that
``headrace --help`` is fast.
"""

import gc
import sys
from collections.abc import Sequence
from errno import EDQUOT, ENOSPC
from typing import NoReturn

import click
from click.exceptions import NoArgsIsHelpError

from headrace.cli.broker import acls, broker
from headrace.cli.command import command, drain, pause, policy, reload, replan, restore, resume
from headrace.cli.dead_letters import dead_letters
from headrace.cli.demo import demo
from headrace.cli.fidelity import calibrate, fidelity
from headrace.cli.files import completion, init, resolve, schema
from headrace.cli.gateway import gateway
from headrace.cli.observe import dashboard, explain, logs, report, status, traces
from headrace.cli.plan import capacity, plan
from headrace.cli.profile import profile
from headrace.cli.roles import control, dispatcher, egress, ingress, profiler, scorer, worker
from headrace.cli.run import doctor, down, kubernetes, up, validate
from headrace.cli.send import load, send
from headrace.cli.session import session
from headrace.cli.session_planning import schedule, search, tier_speed
from headrace.cli.simulate import compare, simulate
from headrace.cli.suggesting import Suggesting
from headrace.errors import INTERRUPTED, UNSUCCESSFUL, exit_code
from headrace.roles.heap import collect_seldom
from headrace.terminal import replace_unknown_characters, say

# Commands in none of these sections are listed under "More".
SECTIONS = {
    "Begin": ("init", "resolve", "validate", "doctor", "demo", "schema", "completion"),
    "Plan and simulate": (
        "profile", "plan", "capacity", "schedule", "search", "tier-speed", "simulate", "compare",
        "calibrate", "fidelity",
    ),
    "Run": ("up", "down", "broker", "acls", "kubernetes"),
    "Use": ("send", "load", "session", "gateway"),
    "Look": ("status", "dashboard", "logs", "explain", "report", "traces", "dead-letters"),
    "Steer": ("policy", "drain", "restore", "pause", "resume", "replan", "reload", "command"),
    "Roles, one process each": (
        "control", "ingress", "dispatcher", "worker", "egress", "scorer", "profiler",
    ),
}  # fmt: skip


class Grouped(Suggesting):
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


COMMANDS = (
    acls, broker, calibrate, capacity, command, compare, completion, control, dashboard,
    dead_letters, demo, dispatcher, doctor, down, drain, egress, explain, fidelity, gateway,
    ingress, init,
    kubernetes, load, logs, pause, plan, policy, profile, profiler, reload, replan, report,
    resolve, restore, resume, schedule, schema, scorer, search, send, session, simulate, status,
    tier_speed, traces, up, validate, worker,
)  # fmt: skip


@click.group(
    cls=Grouped,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="headrace")
def headrace() -> None:
    """SLO-aware serving of ML inference pipelines on Apache Kafka.

    \b
    Begin with:
      headrace demo                           the example pipeline, with its own broker
      headrace up pipeline.yaml               your own pipeline, until Ctrl-C
      headrace send pipeline.yaml input.png   one query, one answer

    \b
    Exit codes: 0 done, 1 not done, 2 bad input, 3 infeasible, 4 no broker, 130 Ctrl-C.
    """


for each in COMMANDS:
    headrace.add_command(each)


def main() -> NoReturn:
    """Run the console script.

    Modules form no garbage: collections at the default pace while a command imports its own, and
    those at the interpreter's end, take a quarter of the CPU of a short command.
    """
    collect_seldom()
    replace_unknown_characters(sys.stdout)
    code = run(sys.argv[1:])
    gc.freeze()
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code; expected errors print one sentence."""
    try:
        code = headrace.main(args=list(arguments), prog_name="headrace", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.Abort:
        say("interrupted")
        return INTERRUPTED
    except NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        say(f"headrace: {_sentence(error)}")
        return error.exit_code
    except BrokenPipeError:
        sys.stderr.close()  # the reader of the output has ended; print nothing more
        return UNSUCCESSFUL
    except Exception as error:
        expected = _expected(error)
        if expected is None:
            raise
        code, sentence = expected
        say(f"headrace: {sentence}")
        return code


def _expected(error: Exception) -> tuple[int, str] | None:
    """Return the exit code and the sentence of an expected error, None for any other."""
    if isinstance(error, OSError) and error.errno in (ENOSPC, EDQUOT):
        where = error.filename or "the output"
        text = f"{where} cannot be written: {error.strerror}; make room and try again"
        return UNSUCCESSFUL, text
    code = exit_code(error)
    return None if code is None else (code, str(error))


def _sentence(error: click.ClickException) -> str:
    text = error.format_message().rstrip(".")
    context = getattr(error, "ctx", None)
    if context is None:
        return text
    see = " See" if text.endswith("?") else "; see"
    return f"{text}{see} `{context.command_path} --help`"
