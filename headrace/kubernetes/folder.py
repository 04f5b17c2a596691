"""The pipeline's folder as a ConfigMap: its file, modules, profiles and small weights."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from headrace.config.pipeline_file import PipelineFile
from headrace.errors import PipelineError
from headrace.model_registry.lock_file import lock_path

# Of the data as JSON. A ConfigMap holds a mebibyte, but `kubectl apply` keeps a copy of it in an
# annotation, which holds 256 KiB.
MOST_BYTES = 260_000
MOST_KEY = 200  # characters
_KEY = re.compile(rf"[A-Za-z0-9_-][A-Za-z0-9._-]{{,{MOST_KEY}}}")
_REFUSED = re.compile(r"[^A-Za-z0-9._-]")


def folder_files(file: PipelineFile) -> dict[str, bytes]:
    """Return what the roles read, by path below the pipeline's folder.

    That is the pipeline file, its profiles, sizes and lock, Python modules, and the files that
    variants name. Raises ``PipelineError`` for a file outside the folder, one that cannot be read,
    and for more than ``kubectl apply`` takes.
    """
    folder = file.path.parent
    paths = {file.path, *file.profiles, *_modules(folder), *_weights(file)}
    paths |= {file.sizes} if file.sizes else set()
    paths |= {lock_path(file.path)} if file.models else set()
    found = {_below(folder, path): _read(path) for path in sorted(paths)}
    size = _json_bytes(config_data(found))
    if size > MOST_BYTES:
        raise PipelineError(
            f"{file.path}: the folder's modules, profiles and weights take {size / 1e3:,.0f} kB of "
            f"a ConfigMap, but `kubectl apply` takes one of {MOST_BYTES / 1e3:.0f}; put the folder "
            "on a volume and name it with --claim"
        )
    return found


def _json_bytes(data: dict[str, Any]) -> int:
    """Return the size of data as kubectl's JSON, where three characters have six bytes each."""
    text = json.dumps(data, ensure_ascii=False)
    return len(text.encode()) + 5 * sum(map(text.count, "<>&"))


def _modules(folder: Path) -> set[Path]:
    found = folder.rglob("*.py")
    return {path for path in found if not _hidden(path.relative_to(folder))}


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _weights(file: PipelineFile) -> set[Path]:
    named = (
        Path(str(value))
        for task in file.pipeline.tasks
        for variant in task.variants
        for value in (*variant.arguments.values(), variant.warm_up)
        if isinstance(value, str)
    )
    return {path for path in named if path.is_absolute() and path.is_file()}


def _below(folder: Path, path: Path) -> str:
    try:
        return str(path.resolve().relative_to(folder))
    except ValueError:
        raise PipelineError(
            f"{path} is not below {folder}, so pods would not have it; move it there"
        ) from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PipelineError(
            f"{path} cannot be read ({error.strerror}); correct the path"
        ) from error


def key_of(path: str) -> str:
    """Return the key of a path in a ConfigMap: the path itself, if it may be a key.

    A key holds no folders and no other letters than these. A digest keeps the keys of two paths
    apart.
    """
    if _KEY.fullmatch(path):
        return path
    digest = hashlib.sha256(path.encode()).hexdigest()
    return f"{digest[:8]}-{_REFUSED.sub('_', path)[-MOST_KEY:]}"


def config_data(files: dict[str, bytes]) -> dict[str, Any]:
    """Return the data of a ConfigMap: texts, and bytes in base64."""
    texts: dict[str, str] = {}
    binary: dict[str, str] = {}
    for path, content in files.items():
        try:
            texts[key_of(path)] = content.decode()
        except UnicodeDecodeError:
            binary[key_of(path)] = base64.b64encode(content).decode()
    return {"data": texts, **({"binaryData": binary} if binary else {})}
