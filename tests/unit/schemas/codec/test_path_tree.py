"""The paths of an answer, folded into a tree and unfolded again."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.codec.json_form import answer_from_json, answer_to_json
from schemas.codec.path_tree import MOST_BRANCHES, folded, unfolded
from schemas.codec.single_object import CodecError, decode, encode
from schemas.records import Answer, Hop, PathTree, TreeBranches, TreeHop
from tests.builders import a_hop, an_answer, an_end

HOPS = st.builds(
    lambda task, worker: a_hop(task=task, worker=worker),
    st.sampled_from("abc"),
    st.sampled_from("xy"),
)
PATHS = st.lists(HOPS, max_size=4).map(tuple)
ENDS = st.builds(
    an_end, st.sampled_from(("answered", "dropped")), st.sampled_from("ab"), st.just("so")
)
BRANCHES = st.lists(st.tuples(PATHS, ENDS), max_size=12)


def answered(branches: list[tuple[tuple[Hop, ...], object]]) -> Answer:
    paths, ends = tuple(path for path, _ in branches), tuple(end for _, end in branches)
    return an_answer(paths=paths, ends=ends)


def wide(branches: int, batch: int) -> Answer:
    """Return a root item and its children, in batches."""
    root = a_hop(task="split")
    hops = [a_hop(task="read", started_s=at // batch) for at in range(branches)]
    paths = tuple((root, hop) for hop in hops)
    return an_answer(paths=paths, ends=(an_end("answered", "read"),) * branches)


@given(BRANCHES)
def test_a_folded_answer_unfolds_to_what_it_was(branches: list[tuple[tuple[Hop, ...], object]]):
    answer = answered(branches)
    assert unfolded(folded(answer)) == answer


@given(BRANCHES)
def test_a_tree_has_no_hop_and_no_end_twice(branches: list[tuple[tuple[Hop, ...], object]]) -> None:
    tree = folded(answered(branches)).tree or PathTree()
    assert len(set(tree.hops)) == len(tree.hops)
    assert len(set(tree.ends)) == len(tree.ends)
    assert all(one.before < at for at, one in enumerate(tree.hops))
    pairs = [(run.hop, run.end) for run in tree.branches]
    assert all(one != other for one, other in itertools.pairwise(pairs))


@given(BRANCHES)
def test_a_tree_survives_avro_and_json(branches: list[tuple[tuple[Hop, ...], object]]) -> None:
    answer = folded(answered(branches))
    assert decode(encode(answer)) == answer
    assert answer_from_json(answer_to_json(answer)) == answer


def test_six_thousand_branches_take_kilobytes() -> None:
    answer = wide(6000, batch=64)
    sizes = [len(write(folded(answer))) for write in (encode, answer_to_json)]
    assert sizes[0] < 20_000
    assert sizes[1] < 40_000
    assert len(answer_to_json(answer)) > 1_000_000


def test_an_answer_without_a_tree_has_no_such_key_in_json() -> None:
    assert b"tree" not in answer_to_json(an_answer())


def test_paths_without_an_end_each_stay_paths() -> None:
    answer = an_answer(paths=((a_hop(),), (a_hop(),)), ends=(an_end("answered", "a"),))
    assert folded(answer) is answer


END, HOP = an_end("answered", "a"), TreeHop(-1, a_hop())


@pytest.mark.parametrize(
    "tree",
    [
        PathTree((HOP,), (END,), (TreeBranches(1, 0, 1),)),
        PathTree((HOP,), (END,), (TreeBranches(-2, 0, 1),)),
        PathTree((HOP,), (END,), (TreeBranches(0, 1, 1),)),
        PathTree((HOP,), (END,), (TreeBranches(0, -1, 1),)),
        PathTree((TreeHop(0, a_hop()),), (END,), (TreeBranches(0, 0, 1),)),
    ],
)
def test_a_tree_that_contradicts_itself_is_refused(tree: PathTree) -> None:
    with pytest.raises(CodecError, match="names a hop or an end that it does not have"):
        unfolded(replace(an_answer(), tree=tree))


def test_a_few_bytes_do_not_claim_a_billion_branches() -> None:
    tree = PathTree((HOP,), (END,), (TreeBranches(0, 0, MOST_BRANCHES), TreeBranches(0, 0, 1)))
    with pytest.raises(CodecError, match="over 1000000 branches"):
        unfolded(replace(an_answer(), tree=tree))


@pytest.mark.parametrize("number", [None, "x", [], {}, 1.5, float("inf")])
@pytest.mark.parametrize("place", ["before", "hop", "end", "count"])
def test_numbers_of_a_foreign_writer_that_are_none_are_refused(place: str, number: object) -> None:
    row = json.loads(answer_to_json(folded(wide(2, 2))))
    tree = row["tree"]
    tree["hops" if place == "before" else "branches"][0][place] = number
    with pytest.raises(CodecError, match=r"makes no sense|over 1000000 branches"):
        unfolded(answer_from_json(json.dumps(row).encode()))
