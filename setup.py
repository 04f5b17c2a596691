"""The build: pure Python, or with HEADRACE_COMPILE=3 what every query passes through compiled.

`make compiled` and `make pure` go one way and back; docs/decisions/0007-compiled-nodes.md says why
these modules, and why not by default.
"""

import os
from typing import Any

from setuptools import setup

# What handles an event, live and simulated, and the driver and observers of virtual time.
HOT = """
    control/per_query/admission.py control/per_query/batching.py control/controller/controller.py
    control/rollout/target.py
    control/estimation/demand.py control/per_query/dropping.py
    control/estimation/multiplicative_factors.py control/controller/membership.py
    control/estimation/estimates.py control/rollout/placement.py control/per_query/rerouting.py
    control/per_query/routing.py
    control/per_query/table_lookup.py control/policies/ramsis/burst_lengths.py
    control/estimation/task_demand.py
    operators/join.py operators/dead_letter.py operators/device.py operators/egress.py
    operators/fanout.py operators/ingress.py operators/latency_histogram.py operators/outbox.py
    operators/plan_follower.py operators/offset_tracker.py operators/drop_reasons.py
    operators/outcomes.py operators/reporter.py
    operators/bursts.py operators/leased_slots.py operators/running_batch.py
    operators/table_batching.py operators/worker_rules.py operators/record_size.py
    operators/worker.py
    operators/models/emulated.py
    streams/observers/plan_usage.py streams/observers/quantiles.py streams/observers/run_metrics.py
    streams/simulated/delays.py
    streams/simulated/simulated_driver.py
    streams/simulated/topic_log.py
"""


def extensions() -> list[Any]:
    """None, unless they are asked for, by how much the C compiler shall optimise (0 to 3).

    mypyc needs mypy, a C compiler and Python's headers.
    """
    level = os.environ.get("HEADRACE_COMPILE", "")
    if not level:
        return []
    from mypyc.build import mypycify

    return mypycify(HOT.split(), group_name="headrace", opt_level=level)


setup(ext_modules=extensions())
