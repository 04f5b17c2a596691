from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from operators.offset_tracker import Progress
from operators.serving.deadline_queue import Ticket, enqueue
from tests.builders import a_work, an_item

PROGRESS = Progress()


def tickets(offset: int, deadline_s: float, items: int) -> list[Ticket]:
    work = a_work(offset, *(an_item() for _ in range(items)), deadline_s=deadline_s)
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


def test_items_that_run_alone_after_a_failure_keep_their_places() -> None:
    queue = deque(tickets(0, 9.0, 1))
    queue[0].alone = True
    enqueue(queue, tickets(1, 1.0, 1))
    assert [ticket.offset for ticket in queue] == [0, 1]


def test_a_record_without_items_queues_nothing() -> None:
    queue = deque[Ticket]()
    enqueue(queue, [])
    assert not queue
