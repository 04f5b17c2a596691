"""The observers of a role."""

import pytest

from headrace.roles.observability.log_options import LogOptions
from headrace.roles.observability.observability import observed
from schemas.pipeline import QuerySize
from streams.observers.size_series import SizeSeries
from tests.builders import a_pipeline


@pytest.mark.parametrize(
    ("role", "reads_queries", "size", "expected"),
    [
        ("ingress-0", True, QuerySize(most=10), True),
        ("ingress-0", True, None, False),
        ("cpu-0", False, QuerySize(most=10), False),
    ],
)
def test_an_ingress_watches_sizes_if_queries_have_any(
    role: str, reads_queries: bool, size: QuerySize | None, expected: bool
) -> None:
    pipeline = a_pipeline(size=size)
    with observed(role, pipeline, LogOptions(), env={}, reads_queries=reads_queries) as watching:
        assert any(isinstance(each, SizeSeries) for each in watching) == expected
