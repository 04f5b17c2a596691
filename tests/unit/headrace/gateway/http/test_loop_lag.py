"""The loop lag of requests: about the duration of the loop's last turn."""

from headrace.gateway.http.loop_lag import LATELY_S, LoopLag
from tests.virtual_loop import VirtualLoop


def test_a_request_has_waited_as_long_as_the_last_turn_took() -> None:
    loop = VirtualLoop()
    lag, seen = LoopLag(loop), []

    def request(takes_s: float) -> None:
        seen.append(lag.waited_s())
        loop.now += takes_s

    def burst() -> None:  # two requests in one turn, which takes 30 ms
        for takes_s in (0.02, 0.01):
            loop.call_soon(request, takes_s)

    loop.call_at(1.0, burst)
    loop.call_at(1.1, request, 0.005)
    loop.call_at(1.2, request, 0.0)
    loop.call_at(1.3 + LATELY_S, request, 0.0)
    loop.call_at(5.0, loop.stop)
    loop.run_forever()
    loop.close()
    assert [round(each, 6) for each in seen] == [0.0, 0.0, 0.03, 0.005, 0.0]
