"""Names of a pipeline's objects that Kubernetes would refuse, or give to two objects. Pure."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.errors import PipelineError

MOST = 63  # characters of a label, and of a name in DNS
# A set of pods is known by a label with its name and a hash: with a longer name it has no pods.
MOST_BY_KIND = {"StatefulSet": MOST - len("-0123456789"), "KafkaTopic": 253}
_PART = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_NAME = re.compile(rf"{_PART}(\.{_PART})*")


def check_object_names(objects: Sequence[dict[str, Any]], path: Path) -> None:
    """Check the names of all objects of the pipeline file at ``path``.

    Names of devices, types, tasks and tiers are parts of them. Raises ``PipelineError``.
    """
    named = [(each["kind"], each["metadata"]["name"]) for each in objects]
    for (kind, name), count in Counter(named).items():
        most = MOST_BY_KIND.get(kind, MOST)
        if count > 1:
            raise PipelineError(
                f"{path}: {count} objects would be the {kind} {name}; small and capital letters, "
                "'.', '_' and '-' are the same there: rename a device type or task"
            )
        if len(name) > most:
            raise PipelineError(
                f"{path}: the name of the {kind} {name} has {len(name)} characters, above the "
                f"{most} that Kubernetes takes; shorten that of the pipeline, device type or task"
            )
        if not _NAME.fullmatch(name):
            raise PipelineError(
                f"{path}: Kubernetes takes no {kind} with the name {name}, whose parts must begin "
                "and end with a letter or digit; rename the device type or task"
            )
