from hypothesis import given
from hypothesis import strategies as st

from operators.offset_tracker import Progress


def begun(*offsets: int, pieces: int = 1) -> Progress:
    progress = Progress()
    for offset in offsets:
        assert progress.begin(offset, pieces)
    return progress


def test_nothing_is_done_before_the_first_record() -> None:
    progress = Progress()
    assert (progress.done, progress.seen, progress.movable, progress.advance()) == (
        -1, -1, False, False,
    )  # fmt: skip


def test_a_record_finished_out_of_order_waits_for_those_before_it() -> None:
    progress = begun(5, 6, 7)
    progress.finish(7)
    assert not progress.advance()
    assert progress.done == -1
    progress.finish(5)
    assert progress.advance()
    assert progress.done == 6
    progress.finish(6)
    assert progress.advance()
    assert progress.done == 8
    assert not progress.advance()


def test_a_record_is_finished_with_the_last_of_its_pieces() -> None:
    progress = begun(0, pieces=3)
    progress.finish(0)
    progress.finish(0, 2 - 1)
    assert not progress.advance()
    progress.finish(0)
    assert progress.advance()
    assert progress.done == 1


def test_a_record_of_no_pieces_needs_nobody() -> None:
    progress = begun(4, pieces=0)
    assert progress.advance()
    assert progress.done == 5


def test_a_record_that_was_seen_is_not_begun_again() -> None:
    progress = begun(3, 4)
    assert not progress.begin(3, 1)
    assert not progress.begin(4, 1)
    progress.finish(3)
    progress.finish(4)
    progress.advance()
    assert not progress.begin(4, 1)
    assert progress.begin(9, 1)  # offsets may have gaps
    assert progress.seen == 10


def test_what_a_record_notes_shows_once_everything_up_to_it_is_finished() -> None:
    progress = Progress()
    progress.begin(0, 1)
    progress.begin(1, 1, note=(2, 40))
    progress.finish(1)
    progress.advance()
    assert progress.notes == {}
    progress.finish(0)
    progress.advance()
    assert progress.notes == {2: 40}


@given(st.permutations(range(12)), st.lists(st.integers(1, 3), min_size=12, max_size=12))
def test_done_is_always_the_first_open_record_and_never_goes_back(
    order: list[int], pieces: list[int]
) -> None:
    progress = Progress()
    for offset in range(12):
        progress.begin(offset, pieces[offset])
    left, done = dict(enumerate(pieces)), -1
    for offset in [o for o in order for _ in range(pieces[o])]:
        progress.finish(offset)
        left[offset] -= 1
        movable = progress.movable
        assert progress.advance() is movable
        open_ones = [o for o, n in left.items() if n]
        assert progress.done >= done
        done = progress.done
        first = min(open_ones, default=12)
        assert done == (first if first else -1)
