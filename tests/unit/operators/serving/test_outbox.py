from control.per_query.routing import spreads
from operators.serving.outbox import packed
from schemas.effects import Send
from schemas.records import DROPPED, Item, Origin, Route
from tests.builders import a_hop, a_work, an_end, an_ended, an_item

BOTH = spreads([Route("read", 0, 0.5), Route("read", 1, 0.5)], "")
ONE = spreads([Route("read", 3, 1.0)], "")


def children(count: int) -> list[Item]:
    return [an_item(branch=(0, i), value=i) for i in range(count)]


def test_twenty_children_for_one_slot_make_one_message() -> None:
    items = children(20)
    work = a_work(7, task="locate", epoch=3)
    assert packed([(work, "read", item) for item in items], ONE, 5, 2) == [
        Send("work.read", a_work(7, *items, epoch=5), 3)
    ]


def test_children_are_spread_over_the_slots_and_packed_for_each() -> None:
    a, b, c = children(3)
    work = a_work(7, task="locate")
    assert packed([(work, "read", item) for item in (a, b, c)], BOTH, 1, 2) == [
        Send("work.read", a_work(7, a, c), 0),
        Send("work.read", a_work(7, b), 1),
    ]


def test_items_of_two_queries_never_share_a_message() -> None:
    (a,) = children(1)
    assert packed([(a_work(7), "read", a), (a_work(8), "read", a)], ONE, 1, 2) == [
        Send("work.read", a_work(7, a), 3),
        Send("work.read", a_work(8, a), 3),
    ]


def test_ended_items_go_to_the_egress_slot_of_the_partition_of_their_query() -> None:
    ended = an_ended("seven")
    work = a_work(7, origin=Origin(3, 7))
    assert packed([(work, "", ended)], ONE, 1, 2) == [
        Send("outputs", a_work(7, ended, origin=Origin(3, 7), task=""), 1)
    ]


def test_an_item_whose_task_nobody_serves_is_dropped_with_the_reason() -> None:
    item = an_item(branch=(0, 1), credit=4, path=(a_hop(),))
    end = an_end(DROPPED, "read", "no worker serves task 'read'")
    dropped = Item(branch=(0, 1), credit=4, path=(a_hop(),), end=end)
    expected = [Send("outputs", a_work(7, dropped, task=""), 0)]
    assert packed([(a_work(7), "read", item)], {}, 1, 2) == expected
    assert packed([(a_work(7), "read", item)], spreads([Route("read", 0, 0.0)], ""), 1, 2) == (
        expected
    )


def test_an_attempt_keeps_its_number() -> None:
    ((send),) = packed([(a_work(7, attempt=2), "", an_ended())], {}, 1, 2)
    assert isinstance(send, Send)
    assert send.record == a_work(7, an_ended(), task="", attempt=2)


def test_inner_tasks_and_egress_see_the_size_of_the_query() -> None:
    (a,) = children(1)
    work = a_work(7, task="locate", size=40)
    assert packed([(work, "read", a), (work, "", an_ended())], ONE, 1, 2) == [
        Send("work.read", a_work(7, a, size=40), 3),
        Send("outputs", a_work(7, an_ended(), task="", size=40), 0),
    ]
