"""The error of an operator whose message serves unchanged as an answer's reason."""


class OperatorFailed(Exception):
    """A batch or a load failed; the message is the complete reason.

    ``trace`` holds the frames of the user's code, one per line, if known.
    """

    def __init__(self, reason: str, trace: str = "") -> None:
        super().__init__(reason)
        self.trace = trace
