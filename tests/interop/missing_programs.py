"""What a machine lacks for a part of `make interop`: the part fails, unless it may be left out."""

import os
from typing import NoReturn

import pytest

LEFT_OUT = "HEADRACE_INTEROP_SKIP"


def missing(need: str) -> NoReturn:
    """Fail the test that needs a program; skip it where ``HEADRACE_INTEROP_SKIP`` is set.

    Either way pytest's summary names the test with the need.
    """
    if os.environ.get(LEFT_OUT):
        pytest.skip(need)
    pytest.fail(f"{need}; {LEFT_OUT}=1 leaves such parts out", pytrace=False)
