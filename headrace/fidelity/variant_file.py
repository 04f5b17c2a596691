"""A pipeline file with another policy in force or other workers, for roles to read.

A cold start under a policy differs from a command that changes to it, so the roles of a judged run
read a file that names the policy. It lies beside the original for the time of the run, because
paths and modules are found from there; a copy of the original's lock of models lies beside it.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from control.policies import policy_named
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.errors import PipelineError
from headrace.model_registry.lock_file import lock_path
from headrace.simulation.overrides import Devices, overridden


def _set_devices(section: dict[str, Any], wanted: PipelineFile) -> None:
    """Write the workers where a file has them: those of types are devices of ``start``."""
    cluster = wanted.cluster
    counts = {name: count // cluster.tasks_per_device for name, count in cluster.devices}
    rented = {name: count for name, count in counts.items() if cluster.type_of(name)}
    fixed = {name: count for name, count in counts.items() if name not in rented}
    for key, found in (("devices", fixed), ("start", rented)):
        section.pop(key, None)
        if found:
            section[key] = found


@contextlib.contextmanager
def as_asked(
    file: PipelineFile, policy: str | None = None, devices: Devices = None
) -> Iterator[PipelineFile]:
    """Yield the pipeline file with this policy and these workers; the original if it has them.

    With other workers the file has no other policy: a fixed plan of one may need more of them.

    Raises ``PipelineError`` for an unknown policy, impossible workers, or a folder that cannot be
    written to.
    """
    name = policy or file.pipeline.policy
    if policy_named(file.pipeline, name) is None:
        raise PipelineError(f"{file.path}: there is no policy {name!r}; name one of the file's")
    wanted = overridden(file, devices)
    same = dict(wanted.cluster.devices) == dict(file.cluster.devices)
    if name == file.pipeline.policy and same:
        yield file
        return
    document = yaml.safe_load(file.path.read_text(encoding="utf-8"))
    document["policy"] = name
    if not same:
        _set_devices(document.setdefault("cluster", {}), wanted)
        others = document.get("policies", {})
        document["policies"] = {kept: others[kept] for kept in others if kept == name}
    path = file.path.with_name(f".{file.path.stem}.{os.getpid()}{file.path.suffix}")
    try:
        _write(document, path, file)
        yield read_pipeline_file(path)
    finally:
        path.unlink(missing_ok=True)
        lock_path(path).unlink(missing_ok=True)


def _write(document: dict[str, Any], path: Path, file: PipelineFile) -> None:
    """Write a pipeline file, and the lock of the original's models beside it."""
    try:
        path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        if file.models:
            lock_path(path).write_bytes(lock_path(file.path).read_bytes())
    except OSError as error:
        raise PipelineError(
            f"{path.parent} cannot be written to ({error.strerror}), and a run with another policy "
            "or other devices needs a pipeline file there; copy the pipeline elsewhere"
        ) from error
