"""Warm-up: run sample batches through an operator before its worker counts as ready.

The first batch of a model costs more than the later ones: kernels are chosen, memory is allocated,
code is compiled. The samples come from the operator's own method ``warm_up()``, a list of inputs of
``predict``, or from the file that the variant names under ``warm_up``, whose bytes are one input.
"""

from pathlib import Path
from typing import Any

from operators.calls.operator_outputs import listed
from operators.calls.own_values import own_values
from operators.calls.user_frames import error_sentence, trace, with_frames
from operators.models.model_errors import BadOperator, ModelError
from schemas.pipeline import Variant


class Warmed:
    """An operator whose ``load`` runs the warm-up batches too."""

    def __init__(self, operator: Any, variant: Variant) -> None:
        self._operator = operator
        self._variant = variant

    def load(self, device: str) -> None:
        """Load, then warm up; raise ``BadOperator`` if a sample cannot be run."""
        self._operator.load(device)
        warm_up(self._operator, self._variant)

    def predict(self, batch: list[Any]) -> Any:
        """Return the operator's outputs."""
        return self._operator.predict(batch)  # looked up now: its ``load`` may replace the method


def warm_up(operator: Any, variant: Variant) -> None:
    """Run a batch of one sample and one of the variant's largest size; nothing without samples.

    Raise ``BadOperator``, with the frames of the user's code, if a sample cannot be run.
    """
    try:
        samples = _samples(operator, variant)
        for batch in _batches(samples, variant.batch):
            outputs = operator.predict(own_values(batch))
            _check(listed(outputs), batch)
    except ModelError:
        raise
    except (Exception, SystemExit) as error:
        text = f"the warm-up of {variant.key} raised {error_sentence(error)}"
        raise BadOperator(with_frames(text, error), trace(error)) from error


def _samples(operator: Any, variant: Variant) -> list[Any]:
    if variant.warm_up:
        return [Path(variant.warm_up).read_bytes()]
    own = getattr(operator, "warm_up", None)
    return list(own()) if callable(own) else []


def _batches(samples: list[Any], largest: int) -> list[list[Any]]:
    if not samples:
        return []
    full = [samples[number % len(samples)] for number in range(largest)]
    return [samples[:1], full] if largest > 1 else [samples[:1]]


def _check(outputs: list[Any], batch: list[Any]) -> None:
    if len(outputs) != len(batch):
        raise ValueError(f"{len(outputs)} outputs for {len(batch)} samples; return one for each")
    refused = next((each for each in outputs if isinstance(each, Exception)), None)
    if refused is not None:
        raise refused
