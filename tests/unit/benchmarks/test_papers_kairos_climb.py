"""Hill climbing over mixes with given instead of simulated capacities."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.papers.kairos_climb import Point, climb, first_mixes, neighbours
from headrace.simulation.capacity_search import WITHIN

COSTS, BUDGET = (0.5, 0.2, 0.3), 1.5
MIXES = [
    (a, b, c)
    for a in range(4)
    for b in range(8)
    for c in range(6)
    if a + b + c and 0.5 * a + 0.2 * b + 0.3 * c <= BUDGET + 1e-9
]


@given(st.sampled_from(MIXES))
def test_neighbours_are_other_mixes_within_the_budget_each_once(mix: tuple[int, ...]) -> None:
    found = neighbours(mix, COSTS, BUDGET)
    assert set(found) <= set(MIXES) - {mix}
    assert len(set(found)) == len(found)


@given(st.sampled_from(MIXES), st.sampled_from(MIXES))
def test_every_mix_is_reached_from_every_other(
    first: tuple[int, ...], last: tuple[int, ...]
) -> None:
    reached, ahead = {first}, [first]
    while ahead:
        new = set(neighbours(ahead.pop(), COSTS, BUDGET)) - reached
        reached |= new
        ahead += new
    assert last in reached


@given(
    st.lists(st.sampled_from(MIXES), min_size=1, max_size=5),
    st.lists(st.floats(1.0, 100.0), min_size=len(MIXES), max_size=len(MIXES)),
)
def test_climb_ends_when_no_start_or_neighbour_carries_one_percent_more(
    starts: list[tuple[int, ...]], capacities: list[float]
) -> None:
    qps = {Point(mix): value for mix, value in zip(MIXES, capacities, strict=True)}

    def around(point: Point) -> list[Point]:
        return [Point(mix) for mix in neighbours(point.mix, COSTS, BUDGET)]

    found = climb(
        [Point(mix) for mix in starts], 1.0, around, lambda point, _: qps[point],
        lambda point, rate: qps[point] >= rate,
    )  # fmt: skip
    assert found.qps == qps[found.point]
    near = [*map(Point, starts), *around(found.point)]
    assert all(qps[each] < found.qps * WITHIN for each in near if each != found.point)
    assert found.evaluated <= len(MIXES)


def test_a_climb_begins_at_the_five_best_mixes_of_the_data(tmp_path: Path) -> None:
    columns = "model,n_g4dn,n_c5n,n_r5n,n_t3,sim_fcfs_qps"
    rows = [f"rm2,1,0,{n},0,{qps}" for n, qps in enumerate((3, 9, 1, 7, 8, 2, 6))]
    text = "\n".join([columns, *rows, "wnd,4,0,0,0,99"]) + "\n"
    (tmp_path / "sim_allowable_exhaustive.csv").write_text(text, encoding="utf-8")
    mixes, qps = first_mixes(tmp_path, "rm2", "fcfs")
    assert [mix[2] for mix in mixes] == [1, 4, 3, 6, 0]
    assert qps == 9.0
