"""The build: pure Python, or with HEADRACE_COMPILE=3 what every query passes through compiled.

`make compiled` and `make pure` go one way and back; docs/decisions/0007-compiled-nodes.md says why
these modules, and why not by default.
"""

import os
from typing import Any

from setuptools import setup

# What handles an event, live and simulated, and the driver and observers of virtual time.
HOT = """
    control/per_query/batching.py control/controller/controller.py
    control/controller/control_state.py control/controller/record_intake.py
    control/controller/solves.py
    control/rollout/target.py control/per_query/class_admission.py
    control/estimation/demand.py control/per_query/dropping.py
    control/estimation/multiplicative_factors.py control/controller/membership.py
    control/estimation/estimates.py control/rollout/placement.py control/per_query/rerouting.py
    control/per_query/routing.py
    control/per_query/table_lookup.py control/policies/ramsis/burst_lengths.py
    control/estimation/task_demand.py
    operators/bursts.py operators/dead_letter.py operators/drop_reasons.py operators/wake_up.py
    operators/egress/egress.py
    operators/ingress/ingress.py operators/join.py operators/egress/latency_histogram.py
    operators/offset_tracker.py operators/outcomes.py operators/plan_follower.py
    operators/record_size.py operators/reporter.py
    operators/serving/deadline_queue.py
    operators/serving/device.py operators/serving/fanout.py operators/serving/leased_slots.py
    operators/serving/item_ends.py
    operators/serving/operator_builds.py operators/serving/outbox.py
    operators/serving/running_batch.py
    operators/serving/session_serving.py operators/serving/table_batching.py
    operators/serving/variant_serving.py operators/serving/worker.py
    operators/serving/worker_rules.py
    operators/models/emulated.py
    streams/observers/plan_usage.py streams/observers/quantiles.py streams/observers/run_metrics.py
    streams/simulated/agenda.py streams/simulated/delays.py
    streams/simulated/simulated_driver.py streams/simulated/simulated_topics.py
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
