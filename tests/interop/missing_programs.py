"""Fail a part of `make interop` whose program the machine lacks, or skip it on request."""

import os
from typing import NoReturn

import pytest

LEFT_OUT = "HEADRACE_INTEROP_SKIP"


def missing(need: str) -> NoReturn:
    """Fail the test that needs a program; skip it if ``HEADRACE_INTEROP_SKIP`` is set.

    In both cases pytest's summary names the test and the need.
    """
    if os.environ.get(LEFT_OUT):
        pytest.skip(need)
    pytest.fail(f"{need}; {LEFT_OUT}=1 leaves such parts out", pytrace=False)
