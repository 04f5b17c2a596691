"""The profile table: look-ups, refusals and JSON."""

import json
import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.measurements import (
    EMULATED,
    QUANTILES,
    Entry,
    FanOut,
    Latency,
    PathAccuracy,
    ProfileError,
)
from profiles.profile_json import parsed_profile, profile_text
from profiles.profile_table import ProfileTable
from tests import allocation_world


def a_row(batch: int, base_s: float = 0.010) -> Latency:
    return Latency(
        batch=batch,
        repeats=50,
        mean_s=base_s,
        p50_s=base_s,
        p90_s=2 * base_s,
        p95_s=3 * base_s,
        p99_s=4 * base_s,
    )


def an_entry(**changes: Any) -> Entry:
    values: dict[str, Any] = {
        "task": "locate",
        "variant": "net",
        "device": "cpu",
        "operator": "shop.locate:Net",
        "weights_sha256": "ab" * 32,
        "load_s": 0.2,
        "memory_bytes": 1000,
        "accuracy": 0.9,
        "children": {"read": FanOut(4.9, {4: 0.1, 5: 0.9})},
        "latency": (a_row(2, 0.010), a_row(4, 0.020), a_row(8, 0.060)),
    }
    return Entry(**values | changes)


def a_table(*entries: Entry) -> ProfileTable:
    return ProfileTable("postcode", entries or (an_entry(),), {"machine": "a laptop"})


@pytest.mark.parametrize(
    ("batch", "seconds"), [(1, 0.010), (2, 0.010), (3, 0.015), (4, 0.020), (7, 0.050), (8, 0.060)]
)
def test_latency_is_linear_between_measured_batches(batch: int, seconds: float) -> None:
    assert a_table().latency_s("locate", "net", "cpu", batch, "p50") == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("quantile", "seconds"),
    [("mean", 0.02), ("p50", 0.02), ("p90", 0.04), ("p95", 0.06), ("p99", 0.08)],
)
def test_every_quantile_can_be_asked_for(quantile: str, seconds: float) -> None:
    assert a_table().latency_s("locate", "net", "cpu", 4, quantile) == pytest.approx(seconds)


def test_the_quantile_is_p95_unless_named() -> None:
    assert a_table().latency_s("locate", "net", "cpu", 2) == pytest.approx(0.030)


@pytest.mark.parametrize("batch", [9, 0, -1])
def test_latency_is_never_extrapolated(batch: int) -> None:
    with pytest.raises(ProfileError, match=rf"batches of 1 to 8, not {batch}; lower the batch or"):
        a_table().latency_s("locate", "net", "cpu", batch)


def test_an_unknown_quantile_lists_the_known_ones() -> None:
    with pytest.raises(ProfileError, match=r"no quantile 'p42'; profiles have mean, p50"):
        a_table().latency_s("locate", "net", "cpu", 2, "p42")


def test_throughput_is_full_batches_back_to_back() -> None:
    assert a_table().throughput("locate", "net", "cpu", 4) == pytest.approx(200)


def test_accuracy_and_fan_out_need_no_device() -> None:
    table = a_table(an_entry(device="cuda:0"))
    assert table.accuracy("locate", "net") == 0.9
    assert table.children_mean("locate", "net", "read") == 4.9


@pytest.mark.parametrize(
    ("asked", "found"), [("cpu", "cpu"), ("cuda:0", "cuda:0"), ("cuda:1", "cuda:0"),
                         ("cuda", "cuda:0"), ("emulated", "cpu")]
)  # fmt: skip
def test_a_device_is_looked_up_as_its_kind(asked: str, found: str) -> None:
    table = a_table(an_entry(), an_entry(device="cuda:0"), an_entry(device="cuda:3"))
    assert table.entry("locate", "net", asked).device == found


def test_a_device_of_another_kind_is_no_substitute() -> None:
    with pytest.raises(ProfileError, match=r"on cuda:1, only on cpu; run .* with --device cuda:1"):
        a_table().entry("locate", "net", "cuda:1")


@pytest.mark.parametrize(
    "ask",
    [
        lambda table: table.entry("read", "vit", "cpu"),
        lambda table: table.latency_s("read", "vit", "cpu", 1),
        lambda table: table.accuracy("read", "vit"),
        lambda table: table.children_mean("read", "vit", "x"),
    ],
)
def test_a_variant_without_a_profile_is_reported(ask: Callable[[ProfileTable], object]) -> None:
    with pytest.raises(ProfileError, match=r"no profile of read/vit, only of locate/net; run `hea"):
        ask(a_table())


def test_a_child_without_a_fan_out_is_reported() -> None:
    with pytest.raises(ProfileError, match=r"has no fan-out to 'sort', only to read; run"):
        a_table().children_mean("locate", "net", "sort")


def test_json_returns_the_same_table() -> None:
    table = a_table(an_entry(), an_entry(device="cuda:0", children={}))
    assert parsed_profile(profile_text(table)) == table


def test_json_has_the_keys_of_the_format() -> None:
    document = json.loads(profile_text(a_table()))
    assert list(document) == ["pipeline", "provenance", "entries"]
    assert document["entries"][0]["children"] == {
        "read": {"mean": 4.9, "counts": {"4": 0.1, "5": 0.9}}
    }
    assert document["entries"][0]["latency"][0] == {
        "batch": 2, "repeats": 50, "mean_s": 0.01, "p50_s": 0.01, "p90_s": 0.02, "p95_s": 0.03,
        "p99_s": 0.04,
    }  # fmt: skip


def broken(change: Callable[[dict[str, Any]], object]) -> str:
    document = json.loads(profile_text(a_table()))
    change(document)
    return json.dumps(document)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.pop("entries"), "the profile lacks 'entries'; run"),
        (lambda d: d.update(more=1), "the profile has a key 'more' that no profile has; remove it"),
        (lambda d: d.update(entries={}), "entries is dict, not list"),
        (lambda d: d.update(provenance=[]), "provenance is list, not dict"),
        (lambda d: d["entries"][0].update(task=["a"]), r"entries\[0\].task is list, not str"),
        (lambda d: d["entries"][0].update(device=None),
         r"entries\[0\].device is NoneType, not str"),
        (lambda d: d["entries"][0]["children"]["read"].update(counts={"4": 10**400}),
         "children.read.counts: int too large"),
        (lambda d: d["entries"].append(3), r"entries\[1\] is int, not dict"),
        (lambda d: d["entries"][0].pop("load_s"), r"entries\[0\] lacks 'load_s'"),
        (lambda d: d["entries"][0].update(children=[]), r"entries\[0\].children is list, not dict"),
        (lambda d: d["entries"][0].update(accuracy="high"), r"entries\[0\]: a number was wanted"),
        (lambda d: d["entries"][0]["latency"][1].pop("p95_s"), r"latency\[1\] lacks 'p95_s'"),
        (lambda d: d["entries"][0]["latency"][1].update(p95_s=-1), r"latency\[1\]: batch 4 took"),
        (lambda d: d["entries"][0]["children"]["read"].update(counts={"few": 1}),
         r"children.read.counts: .*; it maps numbers to probabilities"),
        (lambda d: d["entries"][0]["children"]["read"].update(counts={"4": 0.5}),
         r"children.read: the probabilities of a fan-out sum to 0.5; it must be 1"),
    ],
)  # fmt: skip
def test_a_garbled_profile_is_refused_with_the_place(
    change: Callable[[dict[str, Any]], object], words: str
) -> None:
    with pytest.raises(ProfileError, match=words):
        parsed_profile(broken(change))


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(ProfileError, match=r"this is no JSON: .*; run `headrace profile`"):
        parsed_profile("{")


def test_name_that_is_there_twice_is_refused() -> None:
    """The last one counted, silently."""
    with pytest.raises(ProfileError, match="the key 'pipeline' is there a second time"):
        parsed_profile('{"pipeline": "p", "pipeline": "q", "entries": [], "provenance": {}}')


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"accuracy": 1.1}, "locate/net on cpu: accuracy is 1.1; it must be in 0..1"),
        ({"accuracy": -0.1}, "accuracy is -0.1"),
        ({"load_s": -1.0}, "load time and memory must be 0 or above"),
        ({"memory_bytes": -1}, "load time and memory must be 0 or above"),
        ({"memory_bytes": math.nan}, "load time and memory must be 0 or above"),
        ({"latency": ()}, "no latency was measured"),
        ({"latency": (a_row(4), a_row(2))}, r"batches are \[4, 2\]; they must grow"),
        ({"latency": (a_row(4), a_row(4))}, r"batches are \[4, 4\]; they must grow"),
    ],
)
def test_an_entry_checks_itself(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ProfileError, match=words):
        an_entry(**changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch": 0}, "batch and repeats are whole numbers from 1, not 0"),
        ({"batch": 1.5}, "not 1.5"),
        ({"repeats": 0}, "whole numbers from 1"),
        ({"mean_s": 0.0}, "took 0.0 s; it must be above 0"),
        ({"p99_s": float("inf")}, "took inf s"),
        ({"p90_s": float("nan")}, "took nan s"),
        ({"p90_s": 0.5}, "each must be at least the one before"),
    ],
)
def test_a_latency_checks_itself(changes: dict[str, Any], words: str) -> None:
    values = {"batch": 1, "repeats": 5, "mean_s": 0.1, "p50_s": 0.1, "p90_s": 0.1, "p95_s": 0.1}
    with pytest.raises(ProfileError, match=words):
        Latency(**{**values, "p99_s": 0.1, **changes})


@pytest.mark.parametrize(
    ("mean", "counts", "words"),
    [
        (-1.0, {1: 1.0}, "a mean fan-out of -1.0 is none"),
        (1.0, {}, "must name numbers from 0 up"),
        (1.0, {-1: 1.0}, "must name numbers from 0 up"),
        (1.0, {0: 1.5, 1: -0.5}, "sum to 1; it must be 1"),
    ],
)
def test_a_fan_out_checks_itself(mean: float, counts: dict[int, float], words: str) -> None:
    with pytest.raises(ProfileError, match=words):
        FanOut(mean, counts)


def test_two_tables_merge_into_one() -> None:
    gpu = ProfileTable("postcode", (an_entry(device="cuda:0"),), {"machine": "a server"})
    merged = a_table().merge(gpu)
    assert merged.entries == (an_entry(), an_entry(device="cuda:0"))
    assert merged.provenance == {"merged": [{"machine": "a laptop"}, {"machine": "a server"}]}


@given(
    share=st.floats(0.001, 1.0),
    batch=st.integers(1, 8),
    quantile=st.sampled_from(QUANTILES),
)
def test_at_a_share_latency_is_divided_and_throughput_multiplied(
    share: float, batch: int, quantile: str
) -> None:
    whole, part = a_table(), a_table().at_share(share)
    asked = ("locate", "net", "cpu", batch)
    assert part.latency_s(*asked, quantile) == pytest.approx(
        whole.latency_s(*asked, quantile) / share
    )
    assert part.throughput(*asked) == pytest.approx(whole.throughput(*asked) * share)


def test_at_a_share_all_but_latency_is_as_measured() -> None:
    whole = a_table()
    part = whole.at_share(0.5)
    assert [(e.accuracy, e.children, e.load_s, e.memory_bytes) for e in part.entries] == [
        (e.accuracy, e.children, e.load_s, e.memory_bytes) for e in whole.entries
    ]
    assert part.provenance == {"machine": "a laptop", "share": 0.5}
    assert whole.at_share(1) is whole


@pytest.mark.parametrize("share", [0.0, -0.5, 1.01, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ProfileError, match="must be above 0 and at most 1"):
        a_table().at_share(share)


def test_duplicate_measurement_is_refused() -> None:
    with pytest.raises(ProfileError, match=r"locate/net on cpu is profiled twice; remove one"):
        a_table().merge(a_table())


PATH = ("locate/net", "read/vit")


def a_table_with_a_path() -> ProfileTable:
    table = a_table(an_entry(), an_entry(task="read", variant="vit", accuracy=0.8, children={}))
    return replace(table, paths=(PathAccuracy(PATH, 0.75, 1000),))


def test_a_path_counts_as_measured_and_others_as_the_product() -> None:
    table = a_table_with_a_path()
    assert table.product(PATH) == pytest.approx(0.72)
    assert table.along(PATH) == 0.75
    assert replace(table, paths=()).along(PATH) == pytest.approx(0.72)
    with pytest.raises(ProfileError, match="no profile of read/cnn"):
        table.along(("locate/net", "read/cnn"))


def test_paths_stay_through_json_shares_and_merging() -> None:
    table = a_table_with_a_path()
    assert parsed_profile(profile_text(table)) == table
    assert table.at_share(0.5).paths == table.paths
    other = replace(
        a_table(an_entry(device="cuda:0")),
        paths=(PathAccuracy(PATH, 0.7, 10), PathAccuracy(("locate/net", "read/cnn"), 0.6, 10)),
    )
    assert table.merge(other).paths == (*table.paths, other.paths[1])


def test_a_profile_without_paths_says_nothing_of_them() -> None:
    assert "paths" not in json.loads(profile_text(a_table()))


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        ([{"path": list(PATH), "accuracy": 1.2, "queries": 5}], r"paths\[0\].*must be in 0..1"),
        ([{"path": [], "accuracy": 1.0, "queries": 5}], "empty"),
        ([{"path": [["a"]], "accuracy": 1.0, "queries": 5}], r"path\[0\] is list, not str"),
        ([{"path": list(PATH), "accuracy": 1.0, "queries": math.nan}], "nan queries"),
        ([{"path": list(PATH), "accuracy": 1.0}], r"paths\[0\] lacks 'queries'"),
        ([{"path": list(PATH), "accuracy": 1.0, "queries": 5}] * 2, "profiled twice"),
    ],
)
def test_a_garbled_path_is_refused(paths: list[Any], words: str) -> None:
    document = json.loads(profile_text(a_table())) | {"paths": paths}
    with pytest.raises(ProfileError, match=words):
        parsed_profile(json.dumps(document))


def test_a_table_travels_to_another_process() -> None:
    table = a_table()
    table.latency_s("locate", "net", "emulated", 2)
    assert pickle.loads(pickle.dumps(table)) == table


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=6, unique=True).map(sorted),
    st.floats(1e-5, 10.0),
    st.sampled_from(QUANTILES),
)
def test_latency_never_leaves_the_measured_range(
    batches: list[int], base_s: float, quantile: str
) -> None:
    rows = tuple(a_row(batch, base_s * batch) for batch in batches)
    table = a_table(an_entry(latency=rows))
    measured = [getattr(row, f"{quantile}_s") for row in rows]
    for row, seconds in zip(rows, measured, strict=True):
        assert table.latency_s("locate", "net", "cpu", row.batch, quantile) == pytest.approx(
            seconds
        )
    for batch in range(1, batches[-1] + 1):
        found = table.latency_s("locate", "net", "cpu", batch, quantile)
        assert measured[0] * 0.999999 <= found <= measured[-1] * 1.000001


def test_a_profile_stretched_for_a_kind_of_device_leaves_the_others() -> None:
    table = a_table()
    entry = table.entries[0]
    at = (entry.task, entry.variant)
    slow = table.stretched({entry.device: 2.0, EMULATED: 3.0})
    for batch in range(1, entry.largest + 1):
        once = table.latency_s(*at, entry.device, batch)
        assert slow.latency_s(*at, entry.device, batch) == pytest.approx(2 * once)
        assert slow.latency_s(*at, EMULATED, batch) == pytest.approx(3 * once)
    assert slow.accuracy(*at) == table.accuracy(*at)
    assert table.stretched({}) is table


def test_a_profile_of_enormous_sizes_is_refused_before_it_fills_the_memory() -> None:
    row = Latency(
        batch=10**9, repeats=1, mean_s=1.0, p50_s=1.0, p90_s=1.0, p95_s=1.0, p99_s=1.0
    )  # fmt: skip
    entry = Entry(
        task="t", variant="v", device="cpu", operator="m:C", weights_sha256="", load_s=0.0,
        memory_bytes=0, accuracy=1.0, children={}, latency=(row,),
    )  # fmt: skip
    with pytest.raises(ProfileError, match="measure in larger units"):
        ProfileTable("p", (entry,)).latency_s("t", "v", "cpu", 5)


def test_a_query_of_drawn_size_takes_the_mean_and_quantiles_over_the_sizes() -> None:
    rows = tuple(
        Latency(batch=size, repeats=9, mean_s=s, p50_s=s, p90_s=s, p95_s=s, p99_s=s)
        for size, s in ((1, 0.1), (10, 0.5), (20, 2.0))
    )
    entry = Entry(
        task="t", variant="v", device="cpu", operator="m:C", weights_sha256="", load_s=0.0,
        memory_bytes=0, accuracy=1.0, children={}, latency=rows,
    )  # fmt: skip
    table = ProfileTable("p", (entry,)).per_query({1: 0.6, 10: 0.37, 20: 0.03})
    found = [table.latency_s("t", "v", "cpu", 1, q) for q in ("mean", "p50", "p90", "p95", "p99")]
    assert found == pytest.approx([0.06 + 0.185 + 0.06, 0.1, 0.5, 0.5, 2.0])
    with pytest.raises(ProfileError, match="not 2"):
        table.latency_s("t", "v", "cpu", 2)


def test_items_of_a_task_that_was_measured_for_single_ones_have_no_sizes() -> None:
    alone = allocation_world.an_entry("retrieve", "words", {1: 4.0})
    sized = allocation_world.an_entry("generate", "llama", {1: 2.0, 31: 60.0})
    table = ProfileTable("p", (alone, sized)).per_query({31: 1.0})
    assert table.latency_s("retrieve", "words", "cpu", 1, "mean") == 0.004
    assert table.latency_s("generate", "llama", "cpu", 1, "mean") == pytest.approx(0.06)
