"""Fingerprint of a pipeline file: equal for roles whose files agree on what they share.

Only values that differ from their defaults count, so that a new key changes no fingerprint.
Policies, which only the control app reads, and paths on one machine are left out.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from schemas.pipeline import Pipeline

OWN = frozenset(("policies", "policy", "warm_up"))  # of one role or machine
LENGTH = 12  # hexadecimal digits


def fingerprint(pipeline: Pipeline) -> str:
    """Return the fingerprint of a pipeline, as hexadecimal digits."""
    text = json.dumps(_shared(pipeline), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def _shared(value: Any) -> Any:
    if is_dataclass(value):
        return {
            each.name: _shared(getattr(value, each.name))
            for each in fields(value)
            if each.name not in OWN and getattr(value, each.name) != _default(each)
        }
    if isinstance(value, Mapping):
        return {str(name): _shared(each) for name, each in value.items()}
    return [_shared(each) for each in value] if isinstance(value, (tuple, list)) else value


def _default(found: Field[Any]) -> Any:
    return found.default_factory() if found.default_factory is not MISSING else found.default
