"""``pipeline.lock``: the models that a pipeline file's references stand for.

``headrace resolve`` writes it, and copies the models beside it; all other commands and the roles
read it alone, without a network.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headrace.errors import PipelineError
from headrace.model_registry.signature import Signature


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedModel:
    """A model file as resolved."""

    reference: str
    version: str  # MLflow's version, the hub's commit
    source: str  # its address in the registry
    path: str  # of the copy, below the pipeline's folder
    sha256: str
    size_bytes: int
    signature: Signature | None = None  # as the model states it; None: it states none


def lock_path(file: Path) -> Path:
    """Return the path of a pipeline file's lock, ``pipeline.lock`` for ``pipeline.yaml``."""
    return file.with_suffix(".lock")


def models_folder(file: Path) -> Path:
    """Return the folder of a pipeline file's models, ``pipeline.models``."""
    return file.with_suffix(".models")


def lock_text(models: Iterable[LockedModel]) -> str:
    """Return the lock of models as JSON."""
    packed = msgspec.json.encode({model.reference: model for model in models})
    return msgspec.json.format(packed, indent=2).decode() + "\n"


def read_lock(path: Path) -> dict[str, LockedModel]:
    """Return the locked models by reference; {} without a lock. Raises ``PipelineError``."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, LockedModel])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise PipelineError(
            f"{path} cannot be read ({error}); make it anew with `headrace resolve`"
        ) from error


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file; raises ``OSError``."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_intact(model: LockedModel, file: Path) -> None:
    """Raise ``PipelineError`` if the copy of a model is not what was locked."""
    path = file.parent / model.path
    try:
        found = file_sha256(path)
    except OSError as error:
        raise PipelineError(_again(file, f"{path} cannot be read ({error.strerror})")) from error
    if found != model.sha256:
        raise PipelineError(
            _again(file, f"{path} is not the file that was locked for {model.reference}")
        )


def _again(file: Path, what: str) -> str:
    return f"{what}; run `headrace resolve {file.name}`"
