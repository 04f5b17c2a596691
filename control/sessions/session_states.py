"""State machine of a session: ``TRANSITIONS`` lists every transition.

A serving session has a query plan that ingress follows. While another plan is searched or loaded,
it keeps serving by the old one.
"""

from collections.abc import Mapping
from enum import StrEnum

from schemas.enumerations import SessionState


class SessionChange(StrEnum):
    """An event that changes a session's state."""

    SEARCH = "have its plan searched"
    PLANS = "get plans to choose from"
    SERVE = "serve by a plan that has loaded"
    KEEP = "keep its plan"  # a new one was not found, or is not better
    LOSE = "lose its devices"
    REPLAN = "ask for a new plan"
    CLOSE = "close"


_S, _C = SessionState, SessionChange
TRANSITIONS: Mapping[tuple[SessionState, SessionChange], SessionState] = {
    (_S.OPENING, _C.SEARCH): _S.SEARCHING,
    (_S.OPENING, _C.PLANS): _S.WAITING,
    (_S.OPENING, _C.REPLAN): _S.OPENING,
    (_S.OPENING, _C.CLOSE): _S.CLOSING,
    (_S.SEARCHING, _C.SEARCH): _S.SEARCHING,
    (_S.SEARCHING, _C.PLANS): _S.WAITING,
    (_S.SEARCHING, _C.REPLAN): _S.SEARCHING,
    (_S.SEARCHING, _C.CLOSE): _S.CLOSING,
    (_S.WAITING, _C.PLANS): _S.WAITING,
    (_S.WAITING, _C.SERVE): _S.SERVING,
    (_S.WAITING, _C.LOSE): _S.WAITING,
    (_S.WAITING, _C.REPLAN): _S.OPENING,
    (_S.WAITING, _C.CLOSE): _S.CLOSING,
    (_S.SERVING, _C.PLANS): _S.REPLANNING,  # of a search that continued beyond its first plan
    (_S.SERVING, _C.LOSE): _S.WAITING,
    (_S.SERVING, _C.REPLAN): _S.REPLANNING,
    (_S.SERVING, _C.CLOSE): _S.CLOSING,
    (_S.REPLANNING, _C.SEARCH): _S.REPLANNING,
    (_S.REPLANNING, _C.PLANS): _S.REPLANNING,
    (_S.REPLANNING, _C.SERVE): _S.SERVING,
    (_S.REPLANNING, _C.KEEP): _S.SERVING,
    (_S.REPLANNING, _C.LOSE): _S.WAITING,
    (_S.REPLANNING, _C.REPLAN): _S.REPLANNING,
    (_S.REPLANNING, _C.CLOSE): _S.CLOSING,
    (_S.CLOSING, _C.CLOSE): _S.CLOSING,
}
