from collections import deque

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from operators.offset_tracker import Progress
from operators.serving.deadline_queue import Ticket, enqueue, take_late
from tests.builders import a_work, an_item

PROGRESS = Progress()
GOLD = frozenset(["gold"])


def tickets(offset: int, deadline_s: float, items: int, slo_class: str = "") -> list[Ticket]:
    each = [an_item() for _ in range(items)]
    work = replace(a_work(offset, *each, deadline_s=deadline_s), slo_class=slo_class)
    return [Ticket(item, work, 0, offset, PROGRESS, 0.0) for item in work.items]


@given(st.lists(st.tuples(st.floats(0.0, 5.0), st.integers(1, 3)), max_size=30))
def test_items_queue_by_deadline_and_those_of_one_deadline_by_arrival(
    records: list[tuple[float, int]],
) -> None:
    queue = deque[Ticket]()
    for offset, (deadline_s, items) in enumerate(records):
        enqueue(queue, tickets(offset, deadline_s, items))
    order = [(ticket.work.deadline_s, ticket.offset) for ticket in queue]
    assert order == sorted(order)
    assert len(order) == sum(items for _, items in records)


@given(st.lists(st.tuples(st.floats(0.0, 5.0), st.sampled_from(["gold", "bulk"])), max_size=30))
def test_items_of_a_class_that_goes_ahead_precede_all_others_each_by_deadline(
    records: list[tuple[float, str]],
) -> None:
    queue = deque[Ticket]()
    for offset, (deadline_s, name) in enumerate(records):
        enqueue(queue, tickets(offset, deadline_s, 1, name), GOLD)
    order = [(x.work.slo_class != "gold", x.work.deadline_s, x.offset) for x in queue]
    assert order == sorted(order)


def test_late_items_behind_a_class_that_goes_ahead_are_taken_out() -> None:
    def queue() -> deque[Ticket]:
        each = [(0.1, "bulk"), (9.0, "gold"), (0.2, "bulk"), (5.0, "bulk")]
        return deque(x for k, (s, name) in enumerate(each) for x in tickets(k, s, 1, name))

    for ahead, taken in ((frozenset[str](), [0]), (GOLD, [0, 2])):
        waiting = queue()
        found = take_late(waiting, lambda x: x.work.deadline_s < 1.0, ahead)
        assert [x.offset for x in found] == taken
        assert [x.offset for x in waiting] == [k for k in range(4) if k not in taken]


def test_items_that_run_alone_after_a_failure_keep_their_places() -> None:
    queue = deque(tickets(0, 9.0, 1))
    queue[0].alone = True
    enqueue(queue, tickets(1, 1.0, 1))
    assert [ticket.offset for ticket in queue] == [0, 1]


def test_a_record_without_items_queues_nothing() -> None:
    queue = deque[Ticket]()
    enqueue(queue, [])
    assert not queue
