"""The limit on open files follows the limit on connections."""

import resource
import subprocess
import sys

import pytest

from headrace.errors import GatewayError
from headrace.gateway.http.listeners import open_file_limit

NONE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("grpc", "soft", "hard", "raised"),
    [
        (0, 1024, 4096, 1512),
        (0, 1024, 1512, 1512),
        (0, 2000, 4096, 2000),
        (0, 1024, NONE, 1512),
        (0, NONE, NONE, NONE),
        (300, 1024, 4096, 1812),
    ],
)
def test_the_soft_limit_is_raised_as_far_as_needed(
    grpc: int, soft: int, hard: int, raised: int
) -> None:
    assert open_file_limit(1000, grpc, soft, hard) == raised


def test_a_hard_limit_that_is_too_low_is_reported() -> None:
    with pytest.raises(GatewayError, match=r"needs 1812 open files.* lower it to 212"):
        open_file_limit(1000, 300, 1024, 1024)


def test_a_process_gets_its_open_files() -> None:
    code = (
        "import resource as r; from headrace.gateway.http.listeners import raise_open_files;"
        "r.setrlimit(r.RLIMIT_NOFILE, (64, r.getrlimit(r.RLIMIT_NOFILE)[1]));"
        "raise_open_files(10, 0); print(r.getrlimit(r.RLIMIT_NOFILE)[0])"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout == "522\n"
