"""Streams of answers that their readers do not keep up with."""

import asyncio

from headrace.gateway.result_watch import MOST_BEHIND, ResultWatch
from tests.gateway_world import an_answer


async def test_stream_whose_reader_is_too_slow_ends_and_keeps_no_answers() -> None:
    watch = ResultWatch(asyncio.get_running_loop())
    with watch.stream("batch") as stream:
        for at in range(MOST_BEHIND):
            watch.give(b"batch", an_answer(f"batch-{at}"))
        assert (stream.overrun, stream.answers.qsize()) == (False, MOST_BEHIND)
        for at in range(MOST_BEHIND, 2 * MOST_BEHIND):
            watch.give(b"batch", an_answer(f"batch-{at}"))
        assert stream.overrun
        assert stream.answers.get_nowait().id == "batch-0"
        assert stream.answers.empty()
