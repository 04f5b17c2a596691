"""Generate the source of operators with one knob, for pipelines of sessions."""


def an_operator(name: str, knob: str, each: str) -> str:
    """Return a class whose ``predict`` returns ``each``, an expression of ``value``, per item."""
    return f"""
class {name}:
    def __init__(self, {knob}):
        self._{knob} = {knob}
    def load(self, device):
        pass
    def predict(self, batch):
        return [{each} for value in batch]
"""
