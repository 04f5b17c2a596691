"""Weights files: only formats that cannot run code when they are read."""

from pathlib import Path

from operators.models.model_errors import BadWeights

SAFETENSORS = ".safetensors"
LIGHTGBM_TEXT = ".txt"
ONNX = ".onnx"


def weights_file(path: str, suffix: str) -> Path:
    """Return the path of a weights file; raise ``BadWeights`` if it is missing or lacks ``suffix``.

    The suffix is checked before the file is opened: .pt, .pth, .pkl, .bin and .joblib files may be
    pickles, and reading a pickle runs its author's code.
    """
    file = Path(path)
    if file.suffix != suffix:
        raise BadWeights(
            f"weights {path!r} end in {file.suffix or 'no suffix'!r}; this model reads {suffix} "
            f"files only (weights are safetensors, LightGBM text or ONNX, never pickles)"
        )
    if not file.is_file():
        raise BadWeights(f"there is no file of weights {path!r}; paths start at the pipeline file")
    return file
