"""The answer from the leaf's output."""


def only(leaves: list[str]) -> str:
    """The text that generate wrote."""
    return leaves[0]
