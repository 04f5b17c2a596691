"""Faults of a simulation: read from a file, with the line of errors, or drawn."""

from pathlib import Path

import numpy as np
import pytest

from headrace.errors import PipelineError
from headrace.simulation.faults import BURST, Fault, random_faults, read_faults, with_bursts

DEVICES = ("emulated-0", "emulated-1")


def read(folder: Path, text: str) -> tuple[Fault, ...]:
    path = folder / "faults.yaml"
    path.write_text(text)
    return read_faults(path, DEVICES)


def test_a_schedule_is_read(tmp_path: Path) -> None:
    text = """
- {at: 10s, kind: death, device: emulated-1, for: 5s}
- {at: 11s, kind: death, device: emulated-0}
- {at: 12s, kind: death, device: emulated-0, notice: 30s}
- {at: 20s, kind: slow, device: emulated-1, for: 500ms, factor: 3}
- {at: 30s, kind: control-down, for: 3s}
- {at: 40s, kind: broker-pause, for: 2s}
- {at: 50s, kind: burst, for: 5s, factor: 2.5}
"""
    assert read(tmp_path, text) == (
        Fault(at_s=10.0, kind="death", device="emulated-1", for_s=5.0),
        Fault(at_s=11.0, kind="death", device="emulated-0"),
        Fault(at_s=12.0, kind="death", device="emulated-0", notice_s=30.0),
        Fault(at_s=20.0, kind="slow", device="emulated-1", for_s=0.5, factor=3.0),
        Fault(at_s=30.0, kind="control-down", for_s=3.0),
        Fault(at_s=40.0, kind="broker-pause", for_s=2.0),
        Fault(at_s=50.0, kind="burst", for_s=5.0, factor=2.5),
    )


WRONG = [
    ("", r"faults\.yaml is no file with faults"),
    ("# none", r"faults\.yaml is no file with faults"),
    ("- {kind: [death], at: 1s}", r":1: no fault is called \['death'\]; use death"),
    ("- {kind: burst, at: 1s, for: 2s, factor: .inf}", r":1: a factor of inf is none"),
    ("{}", r"faults\.yaml:1: a list of faults is wanted"),
    ("- at", r"faults\.yaml:1: a fault is a mapping with a kind, one of death, slow"),
    ("- {kind: death, at: 1s, device: emulated-0}\n- {kind: flood, at: 1s}",
     r"faults\.yaml:2: no fault is called 'flood'; use death"),
    ("- {kind: death, at: 1s, device: gpu-7}",
     r"faults\.yaml:1: there is no device 'gpu-7'; the cluster has emulated-0 to emulated-1"),
    ("- {kind: slow, at: 1s, device: emulated-0, for: 2s}", r":1: a slow needs 'factor'"),
    ("- {kind: slow, at: 1s, device: emulated-0, for: 2s, factor: 0}", r"factor of 0 is none"),
    ("- {kind: death, at: 1, device: emulated-0}", r":1: .* is 1 without a unit"),
    ("- {kind: death, at: 1s, devise: emulated-0}", r"no 'devise'; did you mean 'device'"),
    ("- {kind: burst, at: 1s, for: 2s, factor: 1}", r"write one above 1"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "what"), WRONG)
def test_faults_are_reported_with_their_line(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(PipelineError, match=what):
        read(tmp_path, text)


def test_random_faults_are_a_function_of_the_seed() -> None:
    one, other = (random_faults(20, 60.0, DEVICES, np.random.default_rng(5)) for _ in range(2))
    assert one == other
    assert [fault.at_s for fault in one] == sorted(fault.at_s for fault in one)
    assert {fault.kind for fault in one} == {
        "death", "slow", "control-down", "broker-pause", "burst",
    }  # fmt: skip


def test_a_burst_adds_to_the_arrivals_while_it_lasts(rng: np.random.Generator) -> None:
    times = np.arange(0.0, 100.0, 0.01)
    burst = Fault(at_s=20.0, kind=BURST, for_s=10.0, factor=3.0)
    found = with_bursts(times, [burst], rng)
    assert np.all(np.diff(found) >= 0)
    inside = np.count_nonzero((found >= 20.0) & (found < 30.0))
    assert len(found) - inside == 9000
    assert abs(inside - 3000) < 4 * np.sqrt(2000)
