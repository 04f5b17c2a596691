"""The errors of the front door, as a tree. Exit codes in brackets.

HeadraceError                   [2]  schemas/user_errors.py: the message is for who must act
├── CodecError                  [2]  schemas: bytes that are no record
├── ProfileError                [2]  profiles: a profile that lacks or contradicts something
├── PlanError                   [2]  control: a problem that no policy can plan for
├── SizesError                  [2]  control: sizes of queries that cannot be read
├── ModelError                  [2]  operators: an operator that cannot be made
├── ImpossibleTransition        [2]  operators: a state that cannot follow another, a fault of ours
├── KafkaConfigError            [2]  streams: a client configuration that cannot be used
├── BrokerError                 [4]  streams: no broker, or one that refuses
├── StoodStill                  [1]  streams: a process whose place another may have taken
├── LogWentBack                 [1]  streams: a topic that was made anew or has lost its end
├── RecordTooLarge              [2]  streams: a record of ours that has no smaller form
├── OperatorStuck               [1]  streams: an operator that neither returns nor ends
├── PipelineError               [2]  the pipeline file
├── ArrivalsError               [2]  a file of arrivals
├── CertificateError            [2]  a certificate of the simulation
├── NameTaken                   [2]  a node of this name lives elsewhere
├── PartitionsChanged           [1]  the input topic has other partitions than a role began with
├── PortTaken                   [2]  the port for metrics
├── Unfeasible                  [3]  the plan in force cannot serve what is asked
└── Unsuccessful                [1]  what was asked for did not come about
NoAnswer, ClientClosed               of the Python client
Interrupted                          SIGTERM or Ctrl-C, on the way out of ``up``
"""

from schemas.user_errors import BAD_INPUT as BAD_INPUT
from schemas.user_errors import INFEASIBLE as INFEASIBLE
from schemas.user_errors import NO_BROKER as NO_BROKER
from schemas.user_errors import UNSUCCESSFUL as UNSUCCESSFUL
from schemas.user_errors import HeadraceError as HeadraceError

INTERRUPTED = 130


def exit_code(error: BaseException) -> int | None:
    """Return the exit code of an error that is told in one sentence; None for any other."""
    return error.exit_code if isinstance(error, HeadraceError) else None


class PipelineError(HeadraceError, ValueError):
    """A pipeline file, or what it names, that cannot be used; one sentence with the mend."""


class NameTaken(HeadraceError):
    """A node of this name lives elsewhere; one sentence with the mend."""


class PartitionsChanged(HeadraceError):
    """The input topic has another number of partitions than when the role began."""

    exit_code = UNSUCCESSFUL


class ArrivalsError(HeadraceError, ValueError):
    """An arrivals file or a rate that cannot be used; one sentence with the line."""


class CertificateError(HeadraceError, ValueError):
    """JSON that is no certificate of this format; one sentence."""


class PortTaken(HeadraceError):
    """The port for metrics is another program's; the message says which and what to do."""


class Unfeasible(HeadraceError):
    """The plan in force cannot serve what is asked; one sentence with what stands in the way."""

    exit_code = INFEASIBLE


class Unsuccessful(HeadraceError):
    """What was asked for did not come about; one sentence with the mend."""

    exit_code = UNSUCCESSFUL


class NoAnswer(TimeoutError):
    """No answer came in time."""


class ClientClosed(Exception):
    """The client was closed before the answer came, or had been when the query was submitted."""


class Interrupted(Exception):
    """A signal came while something had to become ready."""
