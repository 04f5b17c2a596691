"""The two workloads: the payloads of clients, the right answers, and the SLO."""

import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.rig import ROOT

POSTCODE = ROOT / "examples" / "postcode"
ENVELOPES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """``answers`` are the bytes that the response to each payload must hold."""

    name: str
    slo_s: float
    rates: tuple[float, ...]  # queries/s offered to every system; the first is the low load
    payloads: Sequence[bytes]
    answers: Sequence[bytes]


def noop() -> Workload:
    """Two stages that do nothing: 500 bytes of text in and out."""
    payload = b"x" * 500
    return Workload(
        name="noop", slo_s=0.25, rates=(50.0, 200.0), payloads=[payload], answers=[payload]
    )


def postcode() -> Workload:
    """Envelopes of the example pipeline, read by connected components and an ONNX network."""
    sys.path.insert(0, str(POSTCODE))
    from postcode.locate import Components
    from postcode.pipeline import join
    from postcode.workload import Postcodes

    from operators.models.onnx_model import OnnxModel

    read = OnnxModel(
        str(POSTCODE / "weights" / "read-mlp.onnx"),
        before="postcode.read:pixels", after="postcode.read:digits",
    )  # fmt: skip
    read.load("cpu")
    queries = itertools.islice(Postcodes().queries(np.random.default_rng(17)), ENVELOPES)
    found = [(image, crops) for image, _ in queries if (crops := Components().predict([image])[0])]
    return Workload(
        name="postcode", slo_s=0.5, rates=(20.0, 100.0),
        payloads=[image for image, _ in found],
        answers=[join(read.predict(crops)).encode() for _, crops in found],
    )  # fmt: skip


WORKLOADS = {"noop": noop, "postcode": postcode}
