"""The codec, ingress and the command agent survive any bytes and report what they were.

Continuous integration tries a few hundred cases of each; 100,000 in all are tried by hand with
`python -m pytest -m slow -s tests/unit/test_fuzz.py`, which prints their number.
"""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control.controller.commands import ACTIONS
from operators.ingress.ingress import Ingress
from schemas.codec.raw import DEADLINE_HEADER, ID_HEADER, SLO_CLASS_HEADER
from schemas.codec.schema_store import CURRENT
from schemas.codec.single_object import CodecError, decode, encode
from schemas.effects import COMMANDS, DEAD_LETTERS, OUTPUTS, QUERIES, Arrived, Send, Woke
from schemas.records import Command, Garbled, Notice, Query
from streams.codecs.wire import Fetched, decoder
from streams.control_app.control_records import arrived
from tests.builders import a_lease, a_notice, a_pipeline, a_plan, a_work, an_answer
from tests.control_world import World
from tests.control_world import a_pipeline as a_controlled_pipeline

NOTICED_S = 1.0  # ingress has notified egress before then
CASES = {"codec": 40_000, "ingress": 30_000, "command agent": 30_000}

COMMAND = Command(
    id="c", pipeline="postcode", action="drain", arguments={"target": "w0"}, issued_s=1.0
)
RECORDS = (
    Query(payload=b"some payload", id="q", deadline_s=1e9, slo_class="gold"),
    COMMAND,
    a_work(),
    a_notice(1, 2),
    an_answer(3),
    a_plan([a_lease()]),
)


def damaged(data: bytes, damage: list[tuple[int, bytes]]) -> bytes:
    for place, patch in damage:
        at = place % (len(data) + 1)
        data = data[:at] + patch + data[at + 1 :]
    return data


DAMAGE = st.lists(st.tuples(st.integers(0, 500), st.binary(max_size=9)), max_size=3)
BYTES = st.one_of(
    st.binary(max_size=300),
    st.builds(lambda name, data: CURRENT[name].prefix + data,
              st.sampled_from(sorted(CURRENT)), st.binary(max_size=100)),
    st.builds(damaged, st.sampled_from([encode(record) for record in RECORDS]), DAMAGE),
)  # fmt: skip

# ---------------------------------------------------------------------- the codec


def the_codec_raises_nothing_but_codec_errors(data: bytes) -> None:
    try:
        record = decode(data)
    except CodecError:
        return
    encode(record)


test_codec = given(BYTES)(the_codec_raises_nothing_but_codec_errors)

# ---------------------------------------------------------------------- ingress

NAMES = st.sampled_from([ID_HEADER, DEADLINE_HEADER, SLO_CLASS_HEADER, "else"])
NUMBERS = st.floats() | st.integers(-(10**20), 10**20) | st.floats(1e12, 2e12)
HELD = (
    st.none() | st.binary(max_size=20) | NUMBERS.map(lambda n: str(n).encode()) | st.just(b"gold")
)
HEADERS = st.none() | st.lists(st.tuples(NAMES, HELD), max_size=4)
INPUTS = st.tuples(
    st.sampled_from(["raw", "avro"]), st.none() | BYTES, HEADERS, st.none() | st.binary(max_size=9),
    st.floats(0.0, 4e9),
)  # fmt: skip


def ingress_takes_every_record_once(
    case: tuple[str, bytes | None, Any, bytes | None, float],
) -> None:
    form, value, headers, key, now = case
    pipeline = a_pipeline(input=form, slo_classes={"gold": 0.1})
    ingress = Ingress("i", pipeline, range(4), incarnation=0.0)
    ingress.handle(Woke(), now)
    ingress.handle(Arrived(a_plan([a_lease()]), "plans", 0, 0, now), now)
    fetched = Fetched("p.queries", 2, 7, now, key, value, headers)
    record = decoder(pipeline, QUERIES)(fetched)
    effects = [
        *ingress.handle(Arrived(record, QUERIES, 2, 7, now), now),
        *ingress.handle(Woke(), now + NOTICED_S),
    ]
    sent = [effect for effect in effects if isinstance(effect, Send)]
    for effect in sent:
        encode(effect.record)
        effect.key.encode()
    (notice,) = [e.record for e in sent if e.topic == OUTPUTS and isinstance(e.record, Notice)]
    assert [(n.offset, bool(n.query_id)) for n in notice.queries] == [(7, True)]
    letters = [effect for effect in sent if effect.topic == DEAD_LETTERS]
    assert len(letters) == isinstance(record, Garbled)
    if letters:
        assert notice.queries[0].refused == letters[0].record.reason != ""


test_ingress = given(INPUTS)(ingress_takes_every_record_once)

# ---------------------------------------------------------------------- the command agent

TEXTS = st.text(max_size=12) | st.text(st.characters(), max_size=4) | st.sampled_from(
    ["w0", "cpu", "static", "250ms", "1e400", "nan", "1", "99999999999999999999", "postcode", ""]
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
TYPED = st.fixed_dictionaries(
    {"action": st.sampled_from(sorted(ACTIONS)) | JSON},
    optional={
        "id": TEXTS | JSON,
        "pipeline": st.just("postcode") | JSON,
        "arguments": st.dictionaries(
            st.sampled_from(sorted({name for name, _ in ACTIONS.values()})), TEXTS, max_size=2
        ) | JSON,
        "issued_s": JSON,
    },
) | JSON  # fmt: skip
ASCII = st.booleans()
TYPED_BYTES = st.builds(
    lambda thing, ascii_, damage: damaged(
        json.dumps(thing, ensure_ascii=ascii_).encode(errors="surrogatepass"), damage
    ),
    TYPED, ASCII, st.just([]) | DAMAGE,
)  # fmt: skip
COMMANDED = TYPED_BYTES | BYTES


def the_command_agent_answers_every_command_once(data: bytes) -> None:
    world = World(a_controlled_pipeline()).start("w0", "w1", "w2")
    event = arrived(
        "postcode", COMMANDS, Fetched("headrace.commands", 0, 5, world.now, None, data, None)
    )
    if event is not None:
        world.tell(event)
        world.tell(event)  # read twice
    world.run(0.3)
    for record in (*world.plans, *world.results):
        encode(record)
    for result in world.results:
        result.id.encode()
    ours = event is not None and (
        isinstance(event.record, Garbled)
        or (isinstance(event.record, Command) and event.record.pipeline in ("", "postcode"))
    )
    assert len(world.results) == ours
    assert all(result.message for result in world.results)


test_command_agent = given(COMMANDED)(the_command_agent_answers_every_command_once)

# ---------------------------------------------------------------------- all of it, by hand

CHECKS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], None]]] = {
    "codec": (BYTES, the_codec_raises_nothing_but_codec_errors),
    "ingress": (INPUTS, ingress_takes_every_record_once),
    "command agent": (COMMANDED, the_command_agent_answers_every_command_once),
}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("what", CASES)
def test_a_hundred_thousand_cases(what: str) -> None:
    strategy, check = CHECKS[what]
    tried = 0

    @settings(
        max_examples=CASES[what], deadline=None, database=None, derandomize=False,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def every(case: Any) -> None:
        nonlocal tried
        tried += 1
        check(case)

    began_s = time.perf_counter()
    every()
    print(f"\n{what}: {tried} cases in {time.perf_counter() - began_s:.0f} s")
    assert tried >= CASES[what]
