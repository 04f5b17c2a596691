"""Text of others for terminals and logs."""

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # not: tab, line break


def visible(text: str) -> str:
    """Return the text with control characters as escapes: a terminal would act on a producer's."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def one_line(text: str) -> str:
    """Return the visible text in one line: a line break could make others' text look like ours."""
    return visible(" ".join(text.split()) if "\n" in text else text)
