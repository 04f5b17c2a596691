"""Errors of a role that another process may have replaced: it discards what it has not sent."""

from schemas.user_errors import UNSUCCESSFUL, HeadraceError


class Fenced(HeadraceError):
    """Another process may have replaced this role; the role ends without sending more."""

    exit_code = UNSUCCESSFUL


class StoodStill(Fenced):
    """The process stalled long enough for another to take its place."""


class Replaced(Fenced):
    """A younger process runs a node of the same name."""


class LeaseLost(Fenced):
    """Another egress holds a lease of this one's partitions."""
