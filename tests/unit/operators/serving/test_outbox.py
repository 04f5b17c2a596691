import pytest

from control.per_query.routing import spreads
from control.per_query.shadowing import shadow_of
from operators.record_size import MOST_BYTES
from operators.serving.outbox import BY_TURN, packed
from schemas.effects import Send
from schemas.records import DROPPED, Item, Origin, Route, SessionPlan, SessionStage, Work
from tests.builders import a_hop, a_lease, a_work, an_end, an_ended, an_item

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


SESSION = SessionPlan(
    session="a", number=1, slo_s=1.0,
    stages=(SessionStage(task="read", setting="read/v", tier="", device="w", slot=0, quarters=4),),
)  # fmt: skip


@pytest.mark.parametrize(
    ("session", "dispatchers", "sends"),
    [
        (None, {}, ("work.read", 3)),  # by turn
        (None, {"read": 5}, ("waiting.read", 2)),  # (4 + 8) % 5: by the query's origin
        (None, {"sort": 5}, ("work.read", 3)),
        (SESSION, {}, ("work.read", 0)),  # where the session's query plan says
        (SESSION, {"read": 5}, ("work.read", 0)),
    ],
)
def test_a_child_goes_where_its_session_its_dispatcher_or_else_its_turn_says(
    session: SessionPlan | None, dispatchers: dict[str, int], sends: tuple[str, int]
) -> None:
    work = a_work(8, origin=Origin(4, 8), session=session)
    for chosen in ((), (BY_TURN,)):
        (send,) = packed([(work, "read", an_item())], ONE, 1, 2, chosen, dispatchers)
        assert isinstance(send, Send)
        assert (send.topic, send.slot) == sends
    (steered,) = packed([(work, "read", an_item())], ONE, 1, 2, (0,))
    assert isinstance(steered, Send)
    assert steered.slot == 0


def test_an_item_for_a_dispatcher_of_a_task_that_nobody_serves_is_dropped() -> None:
    (send,) = packed([(a_work(7), "read", an_item())], {}, 1, 2, dispatchers={"read": 5})
    assert isinstance(send, Send)
    assert send.topic == "outputs"


SHADOWED = shadow_of(a_work(7), (("read/v", (a_lease(),)),), 0, 0.0).session


@pytest.mark.parametrize(
    ("session", "sends"),
    [(None, ("outputs", 1)), (SESSION, ("outputs", 1)), (SHADOWED, ("shadows", 0))],
)
def test_only_the_results_of_shadows_leave_out_egress(
    session: SessionPlan | None, sends: tuple[str, int]
) -> None:
    work = a_work(7, origin=Origin(5, 7), session=session)
    (send,) = packed([(work, "", an_ended())], ONE, 1, 2)
    assert isinstance(send, Send)
    assert (send.topic, send.slot) == sends


def test_items_share_a_record_as_long_as_they_fit_one() -> None:
    """Each record has as many items as fit, whose values are at most ``MOST_BYTES`` together."""
    value = bytes(MOST_BYTES // 3)
    items = [an_item(branch=(0, each), value=value) for each in range(7)]
    records = [e.record for e in packed([(a_work(7), "read", x) for x in items], ONE, 1, 2)
               if isinstance(e, Send)]  # fmt: skip
    assert [len(record.items) for record in records if isinstance(record, Work)] == [3, 3, 1]


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
