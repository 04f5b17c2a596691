"""The root of the errors that a user can fix; ``headrace/errors.py`` draws the whole tree."""

from typing import ClassVar

BAD_INPUT, INFEASIBLE, NO_BROKER, UNSUCCESSFUL = 2, 3, 4, 1


class HeadraceError(Exception):
    """An error whose message is one sentence: what was expected, what was found, what to do.

    ``exit_code`` is that of a command that the error ends.
    """

    exit_code: ClassVar[int] = BAD_INPUT
