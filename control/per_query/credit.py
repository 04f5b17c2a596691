"""Division of a query's credit among the children of a fan-out.

Every item holds a whole number of credits; children share their parent's without remainder, so a
query is complete when egress has received ``FULL_CREDIT`` of it, whatever the fan-out was.
"""


def split(credit: int, children: int) -> list[int]:
    """Return shares of ``credit`` for ``children`` (> 0) that sum to it; the first get the rest.

    Raises ``ValueError`` when there are more children than credits.
    """
    share, rest = divmod(credit, children)
    if share == 0:
        raise ValueError(f"{children} children cannot share {credit} credits; fan out less")
    return [share + 1] * rest + [share] * (children - rest)
