"""Compiled and pure-Python nodes (docs/decisions/0007) produce the same effects."""

import shutil
import sysconfig
from pathlib import Path

import pytest

from benchmarks.twins import compiled_copy, printed, pure_copy

HEADERS = Path(sysconfig.get_paths()["include"], "Python.h")

# Run every policy, with and without fan-out, with random faults. Print one hash per run over all
# events and effects of each node.
STORIES = """
import re, tempfile
from hashlib import sha256
from pathlib import Path
import operators.serving.worker
from benchmarks.small_cluster import a_cluster
from headrace.config.pipeline_file import read_pipeline_file
from headrace.simulation.simulation_run import Run, simulated
from headrace.arrivals.arrival_processes import Renewal
from tests.tape import Tape

print(operators.serving.worker.__file__.rpartition(".")[2])
POLICIES = ("loki", "loki-paper", "inferline", "proteus", "fast", "ramsis", "ramsis-paper")
for number, policy in enumerate(POLICIES):
    with tempfile.TemporaryDirectory() as folder:
        alone = {"children": {"read": ()}, "fan_out": 0} if policy.startswith("ramsis") else {}
        file = read_pipeline_file(a_cluster(Path(folder), **alone))
        run = Run(
            file=file, policy=policy, seed=number, arrivals=Renewal(90.0, 6.0), random_faults=3
        )
        tape = Tape()
        ended = simulated(run, lambda sent: None, [tape])
        # 4 is 4.0: a compiled function makes a float of a whole number where one is declared.
        told = re.sub(r"\\.0\\b", "", repr(tape.entries))
        account = ended.metrics
        print(policy, ended.events, account.counts, account.accuracy, account.latency.at(0.99))
        print(sha256(told.encode()).hexdigest())
"""


@pytest.mark.compiled
@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cc"), reason="this machine has no C compiler")
@pytest.mark.skipif(not HEADERS.exists(), reason="this Python came without its headers")
def test_compiled_nodes_do_what_pure_python_does_event_by_event(tmp_path: Path) -> None:
    pure = printed(pure_copy(tmp_path / "pure"), "-c", STORIES).splitlines()
    compiled = printed(compiled_copy(tmp_path / "compiled", 0), "-c", STORIES).splitlines()
    assert (pure[0], compiled[0]) == ("py", "so")
    assert len(pure) == 1 + 2 * 7
    assert compiled[1:] == pure[1:]
