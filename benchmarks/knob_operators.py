"""Generate the source of operators with one knob, and of their workload, for pipelines of
sessions."""

from textwrap import dedent, indent


def an_operator(name: str, knob: str, each: str, load: str = "pass") -> str:
    """Return a class whose ``predict`` returns ``each``, an expression of ``value``, per item, and
    whose ``load`` is the statement ``load``."""
    return f"""
class {name}:
    def __init__(self, {knob}):
        self._{knob} = {knob}
    def load(self, device):
        {load}
    def predict(self, batch):
        return [{each} for value in batch]
"""


def a_workload(name: str, queries: str, right: str = "result[0] == truth") -> str:
    """Return a workload whose ``queries`` are the statements of a generator, with ``rng``; a result
    is right if ``right``, an expression of ``result`` and ``truth``, holds."""
    return f"""
class {name}:
    def queries(self, rng):
{indent(dedent(queries).strip(), " " * 8)}
    def score(self, result, truth):
        return int({right}), 1
    def task_inputs(self, task, rng):
        return iter(())
    def task_score(self, task, output, truth):
        return 0, 1
"""
