"""Models on the Hugging Face hub, by the hub's own client and cache (HF_HOME, HF_HUB_OFFLINE)."""

from collections.abc import Mapping
from pathlib import Path

from headrace.errors import Unsuccessful
from headrace.model_registry.model_files import FoundModel
from headrace.model_registry.references import Reference


def hub_model(reference: Reference, env: Mapping[str, str]) -> FoundModel:
    """Return the model that a reference names now; raises ``Unsuccessful``.

    The client downloads what its cache lacks, unless HF_HUB_OFFLINE forbids it.
    """
    try:
        import httpx
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise Unsuccessful(
            f"{reference.text} needs the hub's client: pip install huggingface-hub ({error})"
        ) from error
    name, revision = reference.name, reference.version
    try:
        kept = Path(hf_hub_download(name, reference.file, revision=revision))
    except (OSError, ValueError, httpx.HTTPError) as error:  # the hub's errors are among them
        story = (str(error).strip().splitlines() or [type(error).__name__])[0]
        where = "its cache (HF_HUB_OFFLINE is set)" if env.get("HF_HUB_OFFLINE") else "it"
        raise Unsuccessful(
            f"the hub's client has no {reference.file} of {name}@{revision} from {where}: {story}; "
            "check the reference, the network and HF_TOKEN"
        ) from error
    root = _root(kept, reference.file)
    return FoundModel(
        version=root.name,
        source=f"hf://{name}@{root.name}",
        opened=lambda wanted: (root / wanted).open("rb"),
    )


def _root(kept: Path, name: str) -> Path:
    """Return the snapshot's folder, whose name is the commit."""
    return kept.parents[len(Path(name).parts) - 1]
