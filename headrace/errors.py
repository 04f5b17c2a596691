"""The errors of the application, as a tree; exit codes in brackets.

HeadraceError                   [2]  schemas/user_errors.py: one sentence for the user
├── CodecError                  [2]  schemas: bytes that are no record
├── ProfileError                [2]  profiles: an incomplete or inconsistent profile
├── PlanError                   [2]  control: a problem that no policy can plan for
│   └── Unplannable             [2]  control: a pipeline that a policy plans on no cluster
│       └── Unprofiled          [2]  control: a profile that lacks what a policy plans by
├── SizesError                  [2]  control: unreadable query sizes
├── ModelError                  [2]  operators: an operator that cannot be constructed
├── ImpossibleTransition        [2]  operators: a state transition outside the table; a bug
├── KafkaConfigError            [2]  streams: an invalid client configuration
├── BrokerError                 [4]  streams: an unreachable broker, or one that refuses
├── WriteRefused                [4]  streams: a record that the broker refuses for good
├── Fenced                      [1]  streams: another process may have taken this one's place
│   ├── StoodStill              [1]  a process that stood still for long
│   ├── Replaced                [1]  a younger process runs a node of the same name
│   └── LeaseLost               [1]  another egress holds the lease
├── LogWentBack                 [1]  streams: a topic that was recreated or truncated
├── TopicGone                   [1]  streams: a topic of the control app that the broker has lost
├── RecordTooLarge              [2]  streams: a record over the size limit
├── OperatorStuck               [1]  streams: an operator that neither returns nor ends
├── PipelineError               [2]  an invalid pipeline file
├── ArrivalsError               [2]  an invalid arrivals file or rate
├── CalibrationError            [2]  a calibration that cannot be read or does not fit
├── CertificateError            [2]  an invalid fidelity certificate
├── NameTaken                   [2]  a node name in use by another process
├── PartitionsChanged           [1]  an input topic whose number of partitions changed
├── InputRecreated              [1]  an input topic that was deleted and recreated
├── PortTaken                   [2]  a port in use by another program
├── GatewayError                [2]  a token or certificate file that the gateway cannot use
├── DashboardError              [2]  a token or pipeline that the dashboard cannot use
├── Unfeasible                  [3]  the plan in force cannot serve the request
└── Unsuccessful                [1]  the request failed
    └── NotTaken                [1]  spans that a collector did not take
NoAnswer, ClientClosed               the Python client
Interrupted                          SIGTERM or Ctrl-C while ``up`` starts
"""

from schemas.user_errors import BAD_INPUT as BAD_INPUT
from schemas.user_errors import INFEASIBLE as INFEASIBLE
from schemas.user_errors import NO_BROKER as NO_BROKER
from schemas.user_errors import UNSUCCESSFUL as UNSUCCESSFUL
from schemas.user_errors import HeadraceError as HeadraceError

INTERRUPTED = 130


def exit_code(error: BaseException) -> int | None:
    """Return the exit code of a ``HeadraceError``; None for any other error."""
    return error.exit_code if isinstance(error, HeadraceError) else None


class PipelineError(HeadraceError, ValueError):
    """A pipeline file, or a reference in it, is invalid; one sentence with the remedy."""


class NameTaken(HeadraceError):
    """Another process runs a node of this name; one sentence with the remedy."""


class PartitionsChanged(HeadraceError):
    """The number of the input topic's partitions changed while the role ran."""

    exit_code = UNSUCCESSFUL


class InputRecreated(HeadraceError):
    """The input topic was deleted and recreated while the role read it."""

    exit_code = UNSUCCESSFUL


class ArrivalsError(HeadraceError, ValueError):
    """An arrivals file or a rate is invalid; one sentence with the line."""


class CalibrationError(HeadraceError, ValueError):
    """A calibration cannot be read, or was measured for other tasks; one sentence."""


class CertificateError(HeadraceError, ValueError):
    """JSON is no certificate of this format; one sentence."""


class PortTaken(HeadraceError):
    """Another program uses the port; one sentence with the port and the remedy."""


class GatewayError(HeadraceError):
    """A file of tokens or certificates that the gateway cannot use; one sentence."""


class DashboardError(HeadraceError):
    """A token or a choice of pipelines that the dashboard cannot use; one sentence."""


class Unfeasible(HeadraceError):
    """The plan in force cannot serve the request; one sentence with the obstacle."""

    exit_code = INFEASIBLE


class Unsuccessful(HeadraceError):
    """The request failed; one sentence with the remedy."""

    exit_code = UNSUCCESSFUL


class NoAnswer(TimeoutError):
    """No answer arrived in time."""


class ClientClosed(Exception):
    """The client was closed before the answer arrived or before the query was submitted."""


class Interrupted(Exception):
    """A signal arrived during start-up."""
