"""The command line: register every command and map errors to exit codes.

Command modules import heavy modules inside functions, so that ``headrace --help`` is fast.
"""

import sys
from collections.abc import Sequence
from typing import NoReturn

import click
from click.exceptions import NoArgsIsHelpError

from headrace.cli.acls import acls
from headrace.cli.broker import broker
from headrace.cli.capacity import capacity
from headrace.cli.command import command, drain, pause, policy, replan, restore, resume
from headrace.cli.compare import compare
from headrace.cli.completion import completion
from headrace.cli.dead_letters import dead_letters
from headrace.cli.demo import demo
from headrace.cli.doctor import doctor
from headrace.cli.explain import explain
from headrace.cli.fidelity import fidelity
from headrace.cli.grouped import Grouped
from headrace.cli.init import init
from headrace.cli.logs import logs
from headrace.cli.plan import plan
from headrace.cli.profile import profile
from headrace.cli.report import report
from headrace.cli.roles import control, egress, ingress, worker
from headrace.cli.run import down, up, validate
from headrace.cli.schedule import schedule
from headrace.cli.schema import schema
from headrace.cli.search import search
from headrace.cli.send import load, send
from headrace.cli.simulate import simulate
from headrace.cli.status import status
from headrace.errors import INTERRUPTED, UNSUCCESSFUL, exit_code
from headrace.terminal import say

COMMANDS = (
    acls, broker, capacity, command, compare, completion, control, dead_letters, demo, doctor, down,
    drain, egress, explain, fidelity, ingress, init, load, logs, pause, plan, policy, profile,
    replan, report, restore, resume, schedule, schema, search, send, simulate, status, up, validate,
    worker,
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
      headrace demo                           the shipped pipeline, with a broker of its own
      headrace up pipeline.yaml               your own, until Ctrl-C
      headrace send pipeline.yaml input.png   one query, one answer

    \b
    Exit codes: 0 done, 1 not done, 2 bad input, 3 infeasible, 4 no broker, 130 Ctrl-C.
    """


for each in COMMANDS:
    headrace.add_command(each)


def main() -> NoReturn:
    """Run the console script."""
    sys.exit(run(sys.argv[1:]))


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
        expected = exit_code(error)
        if expected is None:
            raise
        say(f"headrace: {error}")
        return expected


def _sentence(error: click.ClickException) -> str:
    text = error.format_message().rstrip(".")
    context = getattr(error, "ctx", None)
    return f"{text}; see `{context.command_path} --help`" if context else text
