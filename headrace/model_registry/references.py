"""References to models in registries, as a pipeline file writes them. Pure.

models:/NAME@ALIAS[/FILE]       MLflow's registry; also models:/NAME/VERSION[/FILE]
hf://ORG/NAME@REVISION[/FILE]   the Hugging Face hub; FILE is model.safetensors by default
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from headrace.errors import PipelineError

MLFLOW, HUB = "models:", "hf:"
# MLflow's own grammar of names, less the file behind them.
_MLFLOW = re.compile(
    r"models:/(?P<name>[^/@]+)(?:@(?P<alias>[^/@]+)|/(?P<version>[0-9]+))(?:/(?P<file>.+))?"
)
_HUB = re.compile(r"hf://(?P<name>[^/@]+/[^/@]+)@(?P<revision>[^/@]+)(?:/(?P<file>.+))?")
HUB_FILE = "model.safetensors"  # what transformers writes
# Files that may be pickles, which run their author's code when they are read.
PICKLED = frozenset((".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A reference: ``alias`` or ``version`` of MLflow's, ``version`` alone of the hub's, where it
    is a revision. ``file`` is "" where MLflow's ``MLmodel`` is to name it."""

    text: str
    registry: str  # MLFLOW or HUB
    name: str
    alias: str = ""
    version: str = ""
    file: str = ""


def is_reference(value: object) -> bool:
    """Return whether an argument names a model in a registry, well-formed or not."""
    return isinstance(value, str) and value.startswith((MLFLOW, HUB))


def parsed_reference(text: str) -> Reference:
    """Return a reference; raises ``PipelineError`` for a malformed one or a file of pickles."""
    registry = MLFLOW if text.startswith(MLFLOW) else HUB
    found = GRAMMARS[registry].fullmatch(text)
    if found is None:
        raise PipelineError(f"{text!r} is no reference to a model; write {EXAMPLES[registry]}")
    reference = _reference(text, registry, found.groupdict())
    file = PurePosixPath(reference.file)
    if file.suffix in PICKLED:
        raise PipelineError(
            f"{text!r} names a {file.suffix} file, which may be a pickle that runs code; "
            "register safetensors, ONNX or LightGBM text"
        )
    if leaves_folder(reference.file):
        raise PipelineError(f"{text!r} leaves the model's folder; name a file in it")
    return reference


def leaves_folder(file: str) -> bool:
    """Return whether a file's name leads out of the model's folder."""
    path = PurePosixPath(file)
    return path.is_absolute() or ".." in path.parts


def _reference(text: str, registry: str, parts: Mapping[str, str | None]) -> Reference:
    default = "" if registry == MLFLOW else HUB_FILE
    return Reference(
        text=text,
        registry=registry,
        name=parts["name"] or "",
        alias=parts.get("alias") or "",
        version=parts.get("version") or parts.get("revision") or "",
        file=parts["file"] or default,
    )


GRAMMARS = {MLFLOW: _MLFLOW, HUB: _HUB}
EXAMPLES = {
    MLFLOW: "models:/NAME@ALIAS or models:/NAME/VERSION, with /FILE behind it if need be",
    HUB: "hf://ORG/NAME@REVISION, with /FILE behind it if need be",
}
