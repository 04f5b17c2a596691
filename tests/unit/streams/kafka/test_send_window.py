"""Records wait for earlier ones of their partition; each is sent once and in order."""

from collections import defaultdict

from confluent_kafka import KafkaError
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from streams.kafka.send_window import MOST_UNCONFIRMED, Departure, SendWindow, TurnRecord
from streams.kafka.turn import Turn

Left = tuple[tuple[str, int], bytes, Departure]


class Refused:
    """The message of a refused record."""

    def topic(self) -> str:
        return "a"


def always(topic: str) -> bool:
    return True


def sent(window: SendWindow, turn: Turn, topic: str, slot: int, *values: bytes) -> None:
    for value in values:
        turn.waiting += 1
        window.add(window.queue((topic, slot)), TurnRecord(turn, value, None))


def left(window: SendWindow, *, every: bool = False) -> list[Left]:
    released = window.release(always, every=every)
    return [((to.queue.topic, to.queue.slot), one.value, to) for one, to in released]


def values(records: list[Left]) -> list[bytes]:
    return [value for _, value, _ in records]


MANY = [b"%d" % number for number in range(MOST_UNCONFIRMED)]


def test_a_whole_turn_leaves_together_and_the_next_one_waits_for_it() -> None:
    window, turn = SendWindow(), Turn()
    sent(window, turn, "a", 0, *MANY, b"more")
    first = left(window)
    assert values(first) == [*MANY, b"more"]
    sent(window, Turn(), "a", 0, b"later", b"last")
    assert (left(window), window.closed) == ([], True)
    for _, _, flight in first[:2]:
        flight.delivered(None, None)
    assert (values(left(window)), window.closed) == ([b"later", b"last"], False)
    assert turn.waiting == len(first) - 2


def test_a_few_records_under_way_hold_nothing_back() -> None:
    window = SendWindow()
    for value in MANY:
        sent(window, Turn(), "a", 0, value)
        assert values(left(window)) == [value]
    sent(window, Turn(), "a", 0, b"more")
    assert left(window) == []


def test_a_record_waits_for_the_end_of_its_turn_only_behind_another_one() -> None:
    window, turn = SendWindow(), Turn()
    queue = window.queue(("a", 0))
    assert queue.idle
    flight = queue.depart(turn)  # at once, without waiting
    assert not queue.idle
    sent(window, turn, "a", 0, b"second")
    assert values(left(window)) == [b"second"]
    turn.waiting += 1
    for _ in range(2):
        assert not queue.idle
        flight.delivered(None, None)
    assert queue.idle
    sent(window, turn, "a", 0, b"third")
    assert not queue.idle


def test_no_record_leaves_at_once_for_a_partition_that_refused_one() -> None:
    queue = SendWindow().queue(("a", 0))
    queue.depart(Turn()).delivered(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), Refused())
    assert not queue.idle


def test_a_partition_that_confirms_nothing_holds_back_no_other() -> None:
    window = SendWindow()
    sent(window, Turn(), "a", 0, *MANY)
    left(window)
    sent(window, Turn(), "a", 0, b"held")
    sent(window, Turn(), "a", 1, b"other slot")
    sent(window, Turn(), "b", 0, b"other topic")
    assert values(left(window)) == [b"other slot", b"other topic"]


def test_records_whose_partitions_the_client_chooses_wait_for_none() -> None:
    window = SendWindow()
    sent(window, Turn(), "a", -1, *MANY)
    left(window)
    sent(window, Turn(), "a", -1, b"more")
    assert (window.closed, values(left(window))) == (False, [b"more"])


def test_the_end_of_a_process_waits_for_no_confirmation() -> None:
    window = SendWindow()
    sent(window, Turn(), "a", 0, *MANY)
    left(window)
    sent(window, Turn(), "a", 0, b"last")
    assert values(left(window, every=True)) == [b"last"]


def test_a_topic_that_may_not_be_written_waits_without_being_closed() -> None:
    """A record without a fresh lease waits for the lease, not for the broker's confirmation."""
    window = SendWindow()
    sent(window, Turn(), "leased", 0, b"answer")
    sent(window, Turn(), "a", 0, b"other")
    released = window.release(lambda topic: topic != "leased")
    assert [one.value for one, _ in released] == [b"other"]
    assert (len(window), window.closed) == (1, False)


def test_discarded_records_never_leave() -> None:
    window = SendWindow()
    sent(window, Turn(), "a", 0, b"gone")
    window.clear()
    sent(window, Turn(), "a", 0, b"new")
    assert values(left(window)) == [b"new"]


SLOTS = st.integers(0, 2)


def test_nothing_leaves_for_a_partition_behind_a_record_that_was_refused() -> None:
    window, turn = SendWindow(), Turn()
    for slot in (0, 1):
        sent(window, turn, "a", slot, b"first")
    first = left(window)
    first[0][2].delivered(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), Refused())
    for slot in (0, 1):
        sent(window, turn, "a", slot, b"later")
    assert [place for place, *_ in left(window, every=True)] == [("a", 1)]


class Sending(RuleBasedStateMachine):
    """Turns that send, and a broker that confirms in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.window, self.turns, self.count = SendWindow(), [Turn()], 0
        self.sent = defaultdict[int, list[bytes]](list)
        self.left = defaultdict[int, list[bytes]](list)
        self.under_way = defaultdict[int, list[Departure]](list)

    @rule(slot=SLOTS, count=st.integers(1, 8))
    def send(self, slot: int, count: int) -> None:
        new = [b"%d" % (self.count + each) for each in range(count)]
        self.count += count
        self.sent[slot] += new
        sent(self.window, self.turns[-1], "a", slot, *new)

    @rule()
    def end_turn(self) -> None:
        before = {slot: len(flights) for slot, flights in self.under_way.items()}
        for (_, slot), value, flight in left(self.window):
            assert before.get(slot, 0) < MOST_UNCONFIRMED
            self.left[slot].append(value)
            self.under_way[slot].append(flight)
        self.turns.append(Turn())

    @rule(slot=SLOTS, which=st.integers(0, 99))
    def confirm(self, slot: int, which: int) -> None:
        flights = self.under_way[slot]
        if flights:
            flights.pop(which % len(flights)).delivered(None, None)

    @invariant()
    def every_record_is_counted_in_its_turn(self) -> None:
        under_way = sum(map(len, self.under_way.values()))
        assert sum(turn.waiting for turn in self.turns) == len(self.window) + under_way

    def teardown(self) -> None:
        while len(self.window) or any(self.under_way.values()):
            for slot in list(self.under_way):
                self.confirm(slot, 0)
            self.end_turn()
        assert {slot: self.left[slot] for slot in self.sent} == self.sent
        assert not any(turn.waiting for turn in self.turns)


TestSending = Sending.TestCase
