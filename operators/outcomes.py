"""The outcome of a query; every count of queries goes through ``outcome_of``.

Every query has exactly one outcome, so counts by outcome sum to the queries:

    answered   complete and in time
    late       complete, after its deadline
    dropped    ended early, or answered with a branch missing, in time or not
    failed     an operator or the combine function failed
    refused    not admitted
    lost       acknowledged by the broker, never answered

``Answer.outcome`` is ``answered`` for late and incomplete answers too: it means a result exists.
"""

from operators.drop_reasons import EGRESS_TASK
from operators.drop_reasons import LATE as LATE
from schemas.enumerations import ReasonCode
from schemas.records import ANSWERED, DROPPED, FAILED, REFUSED, Answer

LOST = "lost"
# A deadline that a client stamps one SLO ahead leaves less than the SLO at ingress. The larger of
# this share of the SLO and these seconds is tolerated.
ON_THE_WAY, ON_THE_WAY_S = 0.05, 0.01
TIGHT = 0.25
OUTCOMES = (ANSWERED, LATE, DROPPED, FAILED, REFUSED, LOST)


def outcome_of(answer: Answer | None) -> str:
    """Return the outcome of a query, one of ``OUTCOMES``; ``answer`` None: no answer arrived."""
    if answer is None:
        return LOST
    if answer.outcome != ANSWERED:
        return answer.outcome
    if answer.incomplete:
        return DROPPED
    return LATE if answer.late else ANSWERED


def missed_at(answer: Answer) -> str:
    """Return the task that ended a query early, or at which a late one passed its deadline."""
    if outcome_of(answer) != LATE:
        return answer.task or EGRESS_TASK
    behind = [hop for path in answer.paths for hop in path if hop.finished_s > answer.deadline_s]
    return min(behind, key=lambda hop: hop.finished_s).task if behind else EGRESS_TASK


def cause_of(answer: Answer) -> str:
    """Return why a query was not answered in time, one of ``drop_reasons.CLASSES``; else "".

    An answer that is incomplete because a branch failed counts under that branch's code.
    """
    outcome = outcome_of(answer)
    if outcome in (ANSWERED, LATE):
        return LATE if outcome == LATE else ""
    return answer.reason_code


def tight(answered: Answer) -> bool:
    """Return whether an answer came within the last part ``TIGHT`` of its query's time."""
    allowed_s = answered.deadline_s - answered.created_s
    return answered.answered_s > answered.deadline_s - TIGHT * allowed_s


def unpromised(missed: Answer, slo_s: float) -> bool:
    """Return whether a late or dropped query was outside what a plan for the SLO ``slo_s``
    promises: ingress read it after its deadline, or the deadline left it less than the SLO."""
    allowed_s = missed.deadline_s - missed.created_s
    stamped_s = slo_s - max(ON_THE_WAY * slo_s, ON_THE_WAY_S)
    return missed.reason_code == ReasonCode.READ_LATE or allowed_s < stamped_s
