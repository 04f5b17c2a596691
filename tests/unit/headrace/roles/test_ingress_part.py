"""The part of the root task's devices that an ingress dispatches to."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.config.topology import Share
from headrace.roles.dispatching import ingress_part
from operators.dispatch.device_division import own_workers


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 40))
def test_the_ingresses_that_read_a_partition_divide_all_devices(
    ingresses: int, partitions: int, devices: int
) -> None:
    kinds = {f"w-{number}": "gpu" for number in range(devices)}
    shares = [Share(index, ingresses) for index in range(ingresses)]
    reading = [each for each in shares if each.mine(partitions)]
    owned = [own_workers(kinds, ingress_part(each, partitions)) for each in reading]
    assert sorted(worker for each in owned for worker in each) == sorted(kinds)
