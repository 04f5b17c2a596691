"""The observers of a role."""

import pytest

from headrace.roles.log_options import SILENT
from headrace.roles.observability import observed
from schemas.pipeline import QuerySize
from streams.observers.size_series import SizeSeries
from tests.builders import a_pipeline


@pytest.mark.parametrize(
    ("role", "size", "expected"),
    [
        ("ingress", QuerySize(most=10), True),
        ("ingress", None, False),
        ("worker", QuerySize(most=10), False),
    ],
)
def test_an_ingress_watches_sizes_if_queries_have_any(
    role: str, size: QuerySize | None, expected: bool
) -> None:
    with observed(role, a_pipeline(size=size), SILENT, env={}) as watching:
        assert any(isinstance(each, SizeSeries) for each in watching) == expected
