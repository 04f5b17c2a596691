"""Faults of a GPU that only a new process survives.

After a failed assertion in a kernel, an illegal address and the like, CUDA refuses every later call
of the process, whatever its input. An index out of range in one item is enough. Other errors of
CUDA, such as too little memory, pass.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

# Those of which CUDA's driver_types.h says that "the process must be terminated and relaunched".
LASTING = frozenset((226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911))

# Of onnxruntime, CUDA and cuBLAS.
_NO_MEMORY = re.compile(r"failed to allocate memory|out of memory|alloc_failed", re.IGNORECASE)


def device_lost(error: BaseException) -> bool:
    """Return whether torch reported such a fault, as the error or as its cause."""
    # Torch has this class from release 2.8 on. A process without torch gets no such error.
    fault = getattr(sys.modules.get("torch"), "AcceleratorError", None)
    return fault is not None and any(
        isinstance(each, fault) and getattr(each, "error_code", None) in LASTING
        for each in _causes(error)
    )


def out_of_memory(error: BaseException) -> bool:
    """Return whether the error, or its cause, says that the device or the host lacks memory.

    Of the libraries only torch has a type for that.
    """
    return any(
        isinstance(each, MemoryError)
        or type(each).__name__ == "OutOfMemoryError"
        or (_of_library(each) and _NO_MEMORY.search(str(each)) is not None)
        for each in _causes(error)
    )


def _of_library(error: BaseException) -> bool:
    # Those of onnxruntime derive from Exception.
    return isinstance(error, RuntimeError) or type(error).__module__.startswith("onnxruntime.")


def raise_if_lost(outputs: Sequence[Any]) -> None:
    """Raise the first error among an operator's outputs that is such a fault."""
    for output in outputs:
        if isinstance(output, Exception) and device_lost(output):
            raise output


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or each.__context__
