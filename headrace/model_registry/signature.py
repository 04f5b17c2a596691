"""The signature of a pipeline: the named tensors of its queries and answers, from its file."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

# The datatypes of the Open Inference Protocol that NumPy has.
Datatype = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
    "FP16", "FP32", "FP64", "BYTES",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A named tensor: its datatype in the Open Inference Protocol, and its shape (-1: any size)."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def fits(self, shape: Sequence[int]) -> bool:
        """Return whether a tensor of this shape fits."""
        return len(shape) == len(self.shape) and all(
            wanted in (-1, found) for wanted, found in zip(self.shape, shape, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Signature:
    """The tensors of a query and of its answer, in the file's order."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


# Without a signature: the payload, and the result as JSON.
PLAIN = Signature((TensorSpec("input", "BYTES", (1,)),), (TensorSpec("output", "BYTES", (1,)),))
