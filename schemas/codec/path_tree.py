"""The paths of an answer as a tree: each hop once, whatever number of branches share it.

A query of 6,000 branches in batches of 64 has a hundred distinct hops. ``folded`` and ``unfolded``
are inverses. Answers have paths in this process; the tree is for the results topic.
"""

from msgspec.structs import replace

from schemas.codec.values import CodecError
from schemas.records import Answer, End, Hop, PathTree, TreeBranches, TreeHop

MOST_BRANCHES = 1_000_000  # a few bytes can claim any number
FEW_BRANCHES = 32  # up to here ``compact`` lists them one by one, like every release before 7


def compact(answer: Answer) -> Answer:
    """Return the answer, with a tree if it has more than ``FEW_BRANCHES`` branches."""
    return answer if len(answer.paths) <= FEW_BRANCHES else folded(answer)


def folded(answer: Answer) -> Answer:
    """Return the answer with a tree in place of its paths and ends.

    An answer stays unchanged if it has no paths, or not one end for each path.
    """
    if not answer.paths or len(answer.paths) != len(answer.ends):
        return answer
    hops: dict[tuple[int, Hop], int] = {}
    ends: dict[End, int] = {}
    runs: list[tuple[int, int, int]] = []
    for path, end in zip(answer.paths, answer.ends, strict=True):
        last = -1
        for hop in path:
            last = hops.setdefault((last, hop), len(hops))
        which = ends.setdefault(end, len(ends))
        if runs and runs[-1][:2] == (last, which):
            runs[-1] = (last, which, runs[-1][2] + 1)
        else:
            runs.append((last, which, 1))
    tree = PathTree(
        tuple([TreeHop(before, hop) for before, hop in hops]),
        tuple(ends),
        tuple([TreeBranches(*run) for run in runs]),
    )
    return replace(answer, paths=(), ends=(), tree=tree)


def unfolded(answer: Answer) -> Answer:
    """Return the answer with paths and ends in place of its tree; raise CodecError if it is
    inconsistent."""
    if answer.tree is None:
        return answer
    try:
        return _unfolded(answer, answer.tree)
    except IndexError:
        raise CodecError(
            f"the tree of answer {answer.id!r} names a hop or an end that it does not have"
        ) from None
    except TypeError as error:  # a foreign writer's JSON
        raise CodecError(f"the tree of answer {answer.id!r} makes no sense: {error}") from None


def _unfolded(answer: Answer, tree: PathTree) -> Answer:
    if sum(max(run.count, 0) for run in tree.branches) > MOST_BRANCHES:
        raise CodecError(f"the tree of answer {answer.id!r} has over {MOST_BRANCHES} branches")
    paths: list[tuple[Hop, ...]] = []
    for each in tree.hops:
        paths.append((*_above(paths, each.before), each.hop))
    branches = [
        (_above(paths, run.hop), tree.ends[_index(run.end)], run.count) for run in tree.branches
    ]
    return replace(
        answer,
        tree=None,
        paths=tuple([path for path, _, count in branches for _ in range(count)]),
        ends=tuple([end for _, end, count in branches for _ in range(count)]),
    )


def _above(paths: list[tuple[Hop, ...]], index: int) -> tuple[Hop, ...]:
    return () if index == -1 else paths[_index(index)]


def _index(number: int) -> int:
    if number < 0:
        raise IndexError(number)
    return number
