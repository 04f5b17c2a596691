"""Which errors of an operator mean that its process cannot use the device any more."""

import sys
from types import SimpleNamespace

import pytest

from operators.calls.device_faults import device_lost, out_of_memory, raise_if_lost


class AcceleratorError(RuntimeError):
    """Torch's error, with CUDA's code as torch sets it."""

    def __init__(self, code: int) -> None:
        super().__init__(f"CUDA error {code}")
        self.error_code = code


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(AcceleratorError=AcceleratorError))


def raised(error: Exception, cause: Exception) -> Exception:
    try:
        raise error from cause
    except Exception as found:  # noqa: BLE001 - the error of this test
        return found


ASSERTION = AcceleratorError(710)


def test_a_lasting_fault_is_found_as_the_error_and_as_its_cause() -> None:
    assert device_lost(ASSERTION)
    assert device_lost(raised(ValueError("no label"), ASSERTION))


@pytest.mark.parametrize("error", [RuntimeError("CUDA error 710"), AcceleratorError(209)])
def test_another_error_passes(error: Exception) -> None:
    assert not device_lost(error)
    assert not device_lost(raised(error, error))


def test_without_torch_no_device_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    assert not device_lost(ASSERTION)


def test_a_fault_in_place_of_an_output_is_raised() -> None:
    raise_if_lost([1, ValueError("no label")])
    with pytest.raises(AcceleratorError):
        raise_if_lost([1, ASSERTION])


class OutOfMemoryError(RuntimeError):
    """Torch's error."""


class Fail(Exception):
    """Onnxruntime's error."""

    __module__ = "onnxruntime.capi.onnxruntime_pybind11_state"


@pytest.mark.parametrize(
    ("error", "lacking"),
    [
        (OutOfMemoryError(), True),
        (MemoryError(), True),
        (Fail("Failed to allocate memory for requested buffer of size 8"), True),
        (Fail("Load model from x failed"), False),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling ..."), True),
        (raised(ValueError("no label"), OutOfMemoryError()), True),
        (ValueError("the word is out of memory"), False),
        (RuntimeError("no label"), False),
    ],
)
def test_a_lack_of_memory_is_found(error: Exception, lacking: bool) -> None:
    assert out_of_memory(error) is lacking
