"""Several dispatchers of a task divide its devices, each using only the plan."""

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from operators.dispatch.device_division import own_workers
from operators.dispatch.dispatch_queue import Part

KINDS = ("a", "b", "c")
DEVICES = st.dictionaries(
    st.integers(0, 60).map("w-{}".format), st.sampled_from(KINDS), min_size=1, max_size=40
)
DISPATCHERS = st.integers(1, 6)


def divided(kinds: Mapping[str, str], of: int) -> dict[str, int]:
    """Return the dispatcher of each worker."""
    parts = [own_workers(kinds, Part(index, of)) for index in range(of)]
    assert sum(map(len, parts)) == len(kinds)
    return {worker: index for index, part in enumerate(parts) for worker in part}


@given(DEVICES, DISPATCHERS)
def test_every_device_has_one_dispatcher_and_each_gets_as_many_as_the_others(
    kinds: dict[str, str], of: int
) -> None:
    owners = divided(kinds, of)
    assert owners.keys() == kinds.keys()
    for chosen in ({*KINDS}, *({kind} for kind in KINDS)):
        counts = Counter(owners[worker] for worker in kinds if kinds[worker] in chosen)
        sizes = [counts[index] for index in range(of)]
        assert max(sizes) - min(sizes) <= 1


@given(DEVICES, DISPATCHERS, st.data())
def test_the_loss_of_a_device_moves_few_others(
    kinds: dict[str, str], of: int, data: st.DataObject
) -> None:
    lost = data.draw(st.sampled_from(sorted(kinds)))
    left = {worker: kind for worker, kind in kinds.items() if worker != lost}
    before, after = divided(kinds, of), divided(left, of)
    for kind in KINDS:
        moved = [w for w in left if kinds[w] == kind and before[w] != after[w]]
        assert len(moved) <= of


def test_two_devices_of_two_types_serve_two_dispatchers() -> None:
    assert sorted(divided({"w-0": "a", "w-1": "b"}, 2).values()) == [0, 1]
