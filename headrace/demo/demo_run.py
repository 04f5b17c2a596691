"""``headrace demo``: the whole of Headrace in two minutes, from an empty machine and back to one.

Broker, control app, ingress, workers, egress; warm-up; load that rises and falls, with a change
of policy by command; the report; and everything it started gone.
"""

from dataclasses import replace

from headrace.demo.demo_report import DemoReport
from headrace.demo.environment import DemoEnvironment, EnvironmentOptions, demo_environment
from headrace.demo.load_script import loaded, material
from headrace.demo.script import scripted


def show(wish: EnvironmentOptions) -> DemoReport:
    """Run the demo; the report is complete once everything it started is gone.

    Raises what bringing a pipeline up raises, and ``Unfeasible`` if the plan cannot serve.
    """
    found, left = demo_environment(wish, _shown)
    return replace(found, conditions=replace(found.conditions, left=left))


def _shown(stage: DemoEnvironment) -> DemoReport:
    wish = stage.wish
    script = scripted(wish.file, stage.plan, wish.seconds, wish.rate_qps)
    return loaded(stage, script, material(stage, script))
