"""Mark failures that `make test` must not retry; it retries a test that failed in a parallel run.

A pytest plugin. A missed deadline of wall time may be due to a busy machine and is retried. A query
without its one answer ends the run with ``BROKEN``.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.received_answers import NotOneAnswer

BROKEN = 10  # exit code, beside pytest's own
_MARK = ("not one answer", True)
_found: list[str] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Iterator[Any]:
    """Mark the report of a query without its one answer; xdist hands it to the first process."""
    report = yield
    if call.excinfo is not None and call.excinfo.errisinstance(NotOneAnswer):
        report.user_properties.append(_MARK)
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a marked report."""
    if any(tuple(each) == _MARK for each in report.user_properties):
        _found.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the run with ``BROKEN`` after a marked report."""
    if _found:
        session.exitstatus = BROKEN
