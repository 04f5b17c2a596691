"""The caller's part of a query: its size, and what makes two requests one query."""

from dataclasses import replace

import numpy as np
import pytest

from headrace.gateway.protocol.callers import SIZE, Caller, caller_of, digest
from headrace.gateway.protocol.requests import InferRequest
from headrace.gateway.protocol.statuses import Ending, Unserved
from headrace.gateway.protocol.tensors import number_tensor
from schemas.pipeline import QuerySize
from tests.builders import a_pipeline

PIPELINE = replace(a_pipeline(), size=QuerySize(most=100))


def test_requests_whose_tensors_differ_only_in_description_are_different_queries() -> None:
    """Under one id of a mesh, the second would get the first one's answer."""
    ones = np.ones((2, 3), np.uint8)
    tensors = [
        number_tensor("a", "UINT8", ones),
        number_tensor("b", "UINT8", ones),
        number_tensor("a", "INT8", ones.astype(np.int8)),
        number_tensor("a", "UINT8", ones.reshape(3, 2)),
        number_tensor("a", "UINT8", ones.reshape(6)),
    ]
    found = {digest(InferRequest(inputs=(tensor,)), Caller()) for tensor in tensors}
    found |= {digest(InferRequest(inputs=(tensors[0],)), Caller(size=2))}
    found |= {digest(InferRequest(inputs=(tensors[0],)), Caller(slo_class="gold"))}
    assert len(found) == len(tensors) + 2


@pytest.mark.parametrize("said", ["0", "-1", "1.5", "x", "", "²", "1" * 12])
def test_a_size_is_a_whole_number_from_1(said: str) -> None:
    with pytest.raises(Unserved, match="it must be a whole number from 1") as raised:
        caller_of({SIZE: said}, InferRequest(inputs=()), PIPELINE)
    assert raised.value.status.ending is Ending.BAD_REQUEST


@pytest.mark.parametrize("said", [None, False, 0, [], {}])
@pytest.mark.parametrize("name", ["slo_class", "size"])
def test_a_parameter_that_is_empty_is_refused(name: str, said: object) -> None:
    with pytest.raises(Unserved, match=r"the size is|SLO class"):
        caller_of({}, InferRequest(inputs=(), parameters={name: said}), PIPELINE)


def test_a_size_is_at_most_the_largest_of_the_pipeline() -> None:
    assert caller_of({SIZE: "100"}, InferRequest(inputs=()), PIPELINE).size == 100
    with pytest.raises(Unserved, match="this pipeline takes 100 at most"):
        caller_of({SIZE: "101"}, InferRequest(inputs=()), PIPELINE)
