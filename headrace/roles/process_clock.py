"""The clock of a role's process, used by every node, timer and time stamp."""

import time

from streams.live.steady_clock import SteadyClock

process_clock = SteadyClock(time.time, time.monotonic)
