"""The models that a pipeline file names by references, from its lock."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from headrace.config.sections import (
    FileSection,
    SignatureSection,
    VariantSection,
    pipeline_source,
    validated,
)
from headrace.config.yaml_source import Place, Source
from headrace.errors import PipelineError
from headrace.model_registry.lock_file import LockedModel, lock_path, read_lock
from headrace.model_registry.references import Reference, is_reference, parsed_reference
from headrace.model_registry.signature import Signature, TensorSpec


def references_in(path: Path) -> list[Reference]:
    """Return the references of a pipeline file, each once, in its order.

    Raises ``PipelineError`` with the line of a malformed one.
    """
    source = pipeline_source(path)
    named = _named(validated(source))
    return list(dict.fromkeys(_parsed(text, place, source) for place, text in named))


def locked_models(file: FileSection, source: Source) -> dict[str, LockedModel]:
    """Return the models of a file's references, by reference; {} for a file without any.

    Raises ``PipelineError`` with the line of one that the lock lacks, whose copy is missing, or
    whose tensors are not those of the file's signature.
    """
    named = list(_named(file))
    if not named:
        return {}
    lock = read_lock(lock_path(source.path))
    for place, text in named:
        _parsed(text, place, source)
        _check_locked(lock.get(text), place, source)
    if file.signature is not None:
        _check_signature(file, file.signature, lock, source)
    return {text: lock[text] for _, text in named}


def _named(file: FileSection) -> Iterator[tuple[Place, str]]:
    """Yield the places and texts of all references."""
    for task, section in file.tasks.items():
        for name, variant in section.variants.items():
            place = ("tasks", task, "variants", name)
            weights = variant.arguments.get("weights")
            if isinstance(weights, str) and is_reference(weights):
                yield (*place, "arguments", "weights"), weights
            for key, text in variant.paths.items():
                if is_reference(text):
                    yield (*place, "paths", key), text


def _parsed(text: str, place: Place, source: Source) -> Reference:
    try:
        return parsed_reference(text)
    except PipelineError as error:
        raise source.error(place, f"{{}}: {error}") from error


def _check_locked(model: LockedModel | None, place: Place, source: Source) -> None:
    again = f"run `headrace resolve {source.path.name}`"
    lock = lock_path(source.path).name
    if model is None:
        raise source.error(place, f"{{}} names a model that {lock} lacks; {again}")
    path = source.path.parent / model.path
    if not path.is_file() or path.stat().st_size != model.size_bytes:
        raise source.error(place, f"{{}} is {model.path} by {lock}, and that is not there; {again}")


# ---------------------------------------------------------------------- signatures


def _check_signature(
    file: FileSection, signature: SignatureSection, lock: Mapping[str, LockedModel], source: Source
) -> None:
    """Check the signature against the models at both ends, unless a user's function intervenes.

    A variant's ``before`` or ``after``, and the pipeline's ``combine``, may change the tensors.
    """
    for task, section in file.tasks.items():
        is_root = task == file.topological()[0]
        for name, variant in section.variants.items():
            model = lock.get(str(variant.arguments.get("weights", "")))
            if model is None or model.signature is None:
                continue
            place = ("tasks", task, "variants", name, "arguments", "weights")
            if is_root and _untouched(variant, "before"):
                _check_side("inputs", signature, model, place, source)
            if not section.children and not file.combine and _untouched(variant, "after"):
                _check_side("outputs", signature, model, place, source)


def _untouched(variant: VariantSection, hook: str) -> bool:
    """Return whether a variant's operator is a shipped adapter without this hook."""
    return variant.operator.startswith("operators.models.") and not variant.arguments.get(hook)


def _check_side(
    side: str, signature: SignatureSection, model: LockedModel, place: Place, source: Source
) -> None:
    stated: Signature | None = model.signature
    assert stated is not None
    theirs: Sequence[TensorSpec] = getattr(stated, side)
    ours = getattr(signature, side)
    pairs = zip(ours.values(), theirs, strict=False)
    if len(ours) == len(theirs) and all(
        our.datatype == their.datatype and _same(our.shape, their.shape) for our, their in pairs
    ):
        return
    shown = ", ".join(f"{s.name} {s.datatype} {list(s.shape)}" for s in theirs)
    written = ", ".join(f"{n} {s.datatype} {s.shape}" for n, s in ours.items())
    raise source.error(
        ("signature", side),
        f"{{}} are {written}, but {model.reference} (line {source.line(place)}) has {shown}, the "
        "batch first; correct them, or give the variant a function before or after the model",
    )


def _same(ours: Sequence[int], theirs: Sequence[int]) -> bool:
    """Return whether a query's shape is that of a model, whose first axis is the batch."""
    rest = theirs[1:]
    return len(ours) == len(rest) and all(
        our == their or their == -1 for our, their in zip(ours, rest, strict=True)
    )
