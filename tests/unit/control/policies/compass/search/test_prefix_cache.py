"""The prefix cache stays within its bytes and keeps the entries that save most."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from control.policies.compass.search.prefix_cache import PrefixCache

PUTS = st.lists(
    st.tuples(st.integers(0, 20), st.floats(0.001, 1.0), st.integers(1, 40), st.booleans()),
    max_size=60,
)


@given(PUTS)
def test_cache_stays_within_its_bytes_and_returns_stored_values(
    puts: list[tuple[int, float, int, bool]],
) -> None:
    cache, sizes = PrefixCache(100), {}
    for key, seconds, size, read in puts:
        if read:
            found = cache.get(key)
            assert found is None or found[0] == ("value", key)
            continue
        sizes.setdefault(key, size)
        cache.put(key, ("value", key), seconds, sizes[key])
        assert cache.bytes <= 100
    kept = [key for key in sizes if cache.get(key) is not None]
    assert sum(sizes[key] for key in kept) == cache.bytes
    assert len(kept) == len(cache)


def test_entry_with_the_least_saving_per_byte_is_evicted_first() -> None:
    cache = PrefixCache(10)
    cache.put("cheap", 1, seconds=0.1, size=5)
    cache.put("dear", 2, seconds=9.0, size=5)
    cache.put("middle", 3, seconds=1.0, size=5)
    assert cache.get("cheap") is None
    assert cache.get("dear") == (2, 9.0)
    assert cache.get("middle") == (3, 1.0)


def test_entry_worth_less_than_every_cached_one_is_not_cached() -> None:
    cache = PrefixCache(10)
    cache.put("dear", 1, seconds=9.0, size=10)
    cache.put("cheap", 2, seconds=0.1, size=10)
    assert (cache.get("dear"), cache.get("cheap")) == ((1, 9.0), None)


def test_entry_larger_than_the_cache_is_not_cached() -> None:
    cache = PrefixCache(10)
    cache.put("huge", 1, seconds=9.0, size=11)
    assert len(cache) == 0


def test_hits_take_no_memory() -> None:
    cache = PrefixCache(10)
    cache.put("a", 1, seconds=2.0, size=1)
    tracemalloc.start()
    for _ in range(20_000):
        cache.get("a")
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 100_000
