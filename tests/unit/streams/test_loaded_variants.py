"""Variants on a device after loads, uses and unloads."""

import sys

import pytest

from schemas.effects import Load
from streams.loaded_variants import LoadedVariants


def loaded(*loads: Load) -> LoadedVariants[str]:
    variants = LoadedVariants[str]()
    for number, load in enumerate(loads):
        variants.add(load, f"{load.variant}{number}")
    return variants


def test_a_variant_loaded_alone_evicts_at_its_first_use_what_was_there_before() -> None:
    variants = loaded(Load("a", beside=True), Load("b"), Load("c", beside=True))
    assert [*variants] == ["a", "b", "c"]
    assert variants.use("b") == "b1"
    assert [*variants] == ["b", "c"]
    with pytest.raises(KeyError):
        variants.use("a")


def test_what_is_loaded_anew_before_the_first_use_stays() -> None:
    variants = loaded(Load("a", beside=True), Load("b"), Load("a", beside=True))
    variants.use("b")
    assert variants.use("a") == "a2"


def test_a_fresh_variant_takes_the_place_of_the_present_one_and_leaves_with_it() -> None:
    variants = loaded(Load("a"), Load("b"), Load("a", fresh=True))
    assert variants.use("a") == "a2"
    variants.use("b")
    assert [*variants] == ["b"]


def test_an_unloaded_variant_evicts_nothing_when_it_is_loaded_beside_others() -> None:
    variants = loaded(Load("a", beside=True), Load("b"))
    variants.unload("b")
    variants.add(Load("b", beside=True), "b2")
    variants.use("b")
    assert [*variants] == ["a", "b"]


def test_an_unloaded_variant_is_in_memory_no_more_even_if_another_was_to_evict_it() -> None:
    kept = LoadedVariants[set[int]]()
    model = {1}
    kept.add(Load("a"), model)
    kept.add(Load("b"), {2})
    held = sys.getrefcount(model)
    kept.unload("a")
    assert sys.getrefcount(model) == held - 2
