"""The clock of a role's process: every node, timer and time stamp goes by it."""

import time

from streams.live.steady_clock import SteadyClock

process_clock = SteadyClock(time.time, time.monotonic)
