"""A variant's id: task and variant, with the text form "task/variant".

The text form is used in records, pipeline files, profiles, output and as a key of maps. Only this
module splits and joins it.
"""

from functools import lru_cache
from typing import NamedTuple

KEPT = 4096  # cached texts; a pipeline has a few dozen


class VariantId(NamedTuple):
    """A task's name and the name of one of its variants."""

    task: str
    variant: str


@lru_cache(KEPT)
def variant_id(key: str) -> VariantId:
    """Split "task/variant"; a text without a slash is a task without a variant."""
    task, _, variant = key.partition("/")
    return VariantId(task, variant)


@lru_cache(KEPT)
def variant_key(task: str, variant: str) -> str:
    """Join to "task/variant"."""
    return f"{task}/{variant}"
