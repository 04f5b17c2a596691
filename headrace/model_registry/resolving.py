"""Resolve references: ask the registries, and copy the models beside the pipeline file."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from headrace.errors import Unsuccessful
from headrace.model_registry.hub import hub_model
from headrace.model_registry.lock_file import LockedModel, file_sha256, models_folder
from headrace.model_registry.mlflow_registry import mlflow_model
from headrace.model_registry.model_files import FoundModel
from headrace.model_registry.model_signature import (
    ONNX,
    mlmodel_file,
    mlmodel_signature,
    onnx_signature,
)
from headrace.model_registry.references import HUB, MLFLOW, Reference

MLMODEL = "MLmodel"
REGISTRIES: dict[str, Callable[[Reference, Mapping[str, str]], FoundModel]] = {
    MLFLOW: mlflow_model,
    HUB: hub_model,
}


def current_versions(references: Iterable[Reference], env: Mapping[str, str]) -> dict[str, str]:
    """Return the version that each reference has now; raises ``Unsuccessful``."""
    return {each.text: REGISTRIES[each.registry](each, env).version for each in references}


def resolved(
    references: Iterable[Reference], file: Path, env: Mapping[str, str]
) -> list[LockedModel]:
    """Return the models of a pipeline file's references, copied to its folder of models.

    Raises ``Unsuccessful`` for one that its registry lacks, ``PipelineError`` for one that cannot
    be used.
    """
    return [_resolved(each, file, env) for each in references]


def _resolved(reference: Reference, file: Path, env: Mapping[str, str]) -> LockedModel:
    found = REGISTRIES[reference.registry](reference, env)
    mlmodel = found.text(MLMODEL) if reference.registry == MLFLOW else ""
    name = reference.file or mlmodel_file(mlmodel, reference.text)
    path, sha256 = _copied(found, name, models_folder(file))
    model = LockedModel(
        reference=reference.text, version=found.version, source=f"{found.source}/{name}",
        path=str(path.relative_to(file.parent)), sha256=sha256, size_bytes=path.stat().st_size,
        signature=mlmodel_signature(mlmodel, reference.text),
    )  # fmt: skip
    if model.signature is None and path.suffix == ONNX:
        return replace(model, signature=onnx_signature(path))
    return model


def _copied(found: FoundModel, name: str, folder: Path) -> tuple[Path, str]:
    """Copy a model's file to ``folder/<start of its SHA-256>/<its name>``; return both."""
    folder.mkdir(parents=True, exist_ok=True)
    number, part = tempfile.mkstemp(dir=folder)
    try:
        with os.fdopen(number, "wb") as copy, found.opened(name) as file:
            shutil.copyfileobj(file, copy)
        sha256 = file_sha256(Path(part))
        path = folder / sha256[:16] / Path(name).name
        path.parent.mkdir(exist_ok=True)
        os.replace(part, path)
    except OSError as error:
        with suppress(OSError):
            os.unlink(part)
        raise Unsuccessful(
            f"{found.source}/{name} cannot be copied to {folder}: {error}"
        ) from error
    path.chmod(0o644)  # readable for roles of other users; a temporary file is not
    return path, sha256
