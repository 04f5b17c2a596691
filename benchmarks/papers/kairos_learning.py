"""The section of docs/results/kairos.md about latencies learned from completions (K20).

Each type replays the repeats that the artifact measured: queries of drawn sizes, each with one of
the repeats of its size, in the order in which a dispatcher would see them.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.papers.kairos import MODELS, measured_repeats
from benchmarks.papers.kairos_tables import lines_of
from benchmarks.papers.sources import table
from control.policies.kairos.device_mixes import Floats
from control.policies.kairos.latency_learning import LatencyModel, Profiled

PAPER = "Kairos"
AFTER = (10, 100, 500)  # queries of each type
WRONG = 2.0  # factor of a profile that is off
SEED = 0

Repeats = Mapping[str, Mapping[int, Floats]]  # by type and size, in seconds

LEARNING = f"""\
## Latencies learned from completions

The mean relative error of the dispatcher's predictions (`latency_learning.py`) after 10, 100 and
500 queries of each type, over the sizes of the trace and the four types; in brackets, that of the
worst type (K20). `nothing`: no type is profiled. `profile x {WRONG:g}`: the profile has every
latency {WRONG:g} times too long. Each query takes one of the repeats that the data has for its
size, and the error is that against their mean.

"""


def learning_section(data: Path) -> str:
    """Return the section about learned latencies."""
    sizes, shares = _sizes(data)
    rows = []
    for model in MODELS:
        repeats = measured_repeats(data, model)
        means = {name: {size: float(x.mean()) for size, x in by_size.items()}
                 for name, by_size in repeats.items()}  # fmt: skip
        cells = []
        for profiled in (None, _off(means)):
            cells += [
                f"{np.mean(errors):.1%} ({max(errors):.1%})"
                for errors in learned_errors(repeats, sizes, shares, profiled)
            ]
        rows.append([model, *cells])
    head = [f"{start}, {n}" for start in ("nothing", f"profile x {WRONG:g}") for n in AFTER]
    return LEARNING + lines_of(["model", *head], rows) + "\n"


def learned_errors(
    repeats: Repeats, sizes: list[int], shares: Floats, profiled: Profiled | None
) -> list[list[float]]:
    """Return the relative errors of the predictions by type, after each number of ``AFTER``.

    ``shares`` are the probabilities of the ``sizes``.
    """
    rng = np.random.default_rng(SEED)
    model = LatencyModel(tuple(repeats), profiled)
    found = []
    for number in range(1, AFTER[-1] + 1):
        for name, by_size in repeats.items():
            size = int(rng.choice(sizes, p=shares))
            model.observe(name, size, float(rng.choice(by_size[size])))
        if number in AFTER:
            found.append([_error(model, name, repeats[name], sizes, shares) for name in repeats])
    return found


def _error(
    model: LatencyModel, name: str, by_size: Mapping[int, Floats], sizes: list[int], shares: Floats
) -> float:
    errors = [abs(model.mean_s(name, size) / by_size[size].mean() - 1) for size in sizes]
    return float(np.array(errors) @ shares)


def _off(means: Mapping[str, Mapping[int, float]]) -> Profiled:
    return lambda name, size: WRONG * means[name][size]


def _sizes(data: Path) -> tuple[list[int], Floats]:
    rows = table(data / "query_size_pmf.csv", PAPER)
    shares = np.array([float(row["probability"]) for row in rows])
    return [int(row["batch"]) for row in rows], shares / shares.sum()
