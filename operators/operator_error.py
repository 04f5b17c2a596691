"""The error of an operator whose message is the whole reason, fit for an answer as it stands."""


class OperatorFailed(Exception):
    """A batch or a load that failed; the message is the whole reason.

    ``trace`` has the frames of the user's code, one per line, where they are known.
    """

    def __init__(self, reason: str, trace: str = "") -> None:
        super().__init__(reason)
        self.trace = trace
