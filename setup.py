"""The build: pure Python, or with HEADRACE_COMPILE=3 what every query passes through compiled.

`make compiled` and `make pure` go one way and back; docs/decisions/0007-compiled-nodes.md says why
these modules, and why not by default.
"""

import os
from typing import Any

from setuptools import setup

# What handles an event, live and simulated, and the driver and observers of virtual time.
HOT = """
    control/admission.py control/batching.py control/controller.py control/course.py
    control/credit.py control/demand.py control/dropping.py control/factors.py control/membership.py
    control/outlook.py control/placement.py control/rerouting.py control/routing.py
    control/selection_follow.py control/selection_load.py control/selection_runs.py
    control/task_demand.py
    operators/closing.py operators/dead_letters.py operators/device.py operators/egress.py
    operators/fanout.py operators/ingress.py operators/latencies.py operators/parcels.py
    operators/plans.py operators/progress.py operators/reasons.py operators/reporting.py
    operators/runs.py operators/steering.py operators/weight.py operators/worker.py
    operators/models/emulated.py
    streams/account.py streams/delays.py streams/quantiles.py streams/simulated.py
    streams/simulated_log.py
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
