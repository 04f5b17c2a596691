"""Write the Kairos artifact's models and devices in Headrace's formats.

    python -m benchmarks.papers.kairos DATA_DIR OUT_DIR [--compare [PAGE] | --picks [PAGE]]

Writes for each of the five models (rm2, ncf, wnd, mtwnd, dien) a pipeline file, ``MODEL.yaml``:
four EC2 types with their prices, the QoS as SLO, 2.5 $ per hour. ``MODEL.sizes.csv`` has
the exact probability of each class of query sizes, and ``MODEL.profile.json`` the mean latency of
each class on each type, without spread, so that a simulation has the paper's service times.
``MODEL.noisy.profile.json`` has the quantiles of the measured repeats instead. ``--compare`` then
climbs to the best mixes of the baselines (``kairos_climb``), searches the capacity of every rule
there (``kairos_compare``) and for the paper's claims (``kairos_claims``), and writes the page. This
takes minutes to hours. ``--again`` writes the page from earlier searches in OUT_DIR. ``--picks``
compares the pick of mixes with the best mix (``kairos_picks``) and writes that section of the page.
"""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.papers.sources import DataError, table, unreadable
from benchmarks.row_file import RowFileError
from control.policies.kairos.device_mixes import Floats
from profiles.measurements import Entry, Latency
from profiles.profile_json import profile_text
from profiles.profile_table import ProfileTable

PAPER = "Kairos"
PAGE = Path("docs/results/kairos.md")
MODELS = ("rm2", "ncf", "wnd", "mtwnd", "dien")
TASK = "rank"
# Emulated devices never call the operator, but a pipeline file must name one.
OPERATOR = "operators.models.python:Python"
ARGUMENTS = '{function: "builtins:bytes"}'
SOURCE = "github.com/boringlee24/hpdc23-kairos at fa20590 (doi 10.1145/3588195.3592997)"
DROPPED = 1  # the artifact drops the largest of the repeats, often a cold start


@dataclass(frozen=True, slots=True)
class Setup:
    """Prices of types in $ per hour, SLOs of models in ms, and the common settings."""

    prices: dict[str, float]
    slo_ms: dict[str, float]
    budget: float
    base: str
    most: int


def write(data: Path, out: Path) -> list[Path]:
    """Write all files; return their paths. Raises ``DataError`` for a missing file or row."""
    setup = read_setup(data)
    latencies = table(data / "latency.csv", PAPER)
    samples = table(data / "latency_samples.csv", PAPER)
    sizes = _sizes(data)
    out.mkdir(parents=True, exist_ok=True)
    return [
        path
        for model in MODELS
        for path in (
            _file(out / f"{model}.yaml", _yaml(model, setup)),
            _file(out / f"{model}.sizes.csv", sizes),
            _file(out / f"{model}.profile.json", _profile(model, setup, _means(latencies, model))),
            _file(
                out / f"{model}.noisy.profile.json", _profile(model, setup, _noisy(samples, model))
            ),
        )
    ]


def read_setup(data: Path) -> Setup:
    """Return the prices, SLOs and budget of the paper. Raises ``DataError``."""
    path = data / "setup.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Setup(
            {each["type"]: float(each["price_usd_per_h"]) for each in found["instances"]},
            {each["model"]: float(each["qos_p99_ms"]) for each in found["models"]},
            float(found["budget_usd_per_h"]),
            str(found["base"]),
            int(found["max_batch"]),
        )
    except OSError as error:
        raise unreadable(path, error, PAPER) from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} lacks {error}; DATA_DIR is the folder of the Kairos data"
        ) from error


def _file(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def _sizes(data: Path) -> str:
    rows = table(data / "query_size_pmf.csv", PAPER)
    total = sum(float(row["probability"]) for row in rows)
    lines = [f"{row['batch']},{float(row['probability']) / total:.17g}\n" for row in rows]
    return "size,probability\n" + "".join(lines)


Rows = dict[str, list[Latency]]  # by type


def _means(rows: Sequence[dict[str, str]], model: str) -> Rows:
    found: Rows = {}
    for row in rows:
        if row["model"] == model:
            mean_s = float(row["total_mean_ms"]) / 1e3
            found.setdefault(row["instance"], []).append(
                _latency(int(row["batch"]), int(row["n_samples"]), mean_s, (mean_s,) * 4)
            )
    return found


def measured_repeats(data: Path, model: str) -> dict[str, dict[int, Floats]]:
    """Return the repeats of a model in ascending order, in seconds, by type and size.

    Raises ``DataError``.
    """
    return _repeats(table(data / "latency_samples.csv", PAPER), model)


def _repeats(rows: Sequence[dict[str, str]], model: str) -> dict[str, dict[int, Floats]]:
    found: dict[str, dict[int, Floats]] = {}
    for row in rows:
        if row["model"] == model:
            values = [float(row[key]) / 1e3 for key in row if key[0] == "s" and key[1:].isdigit()]
            kept = np.sort(np.array(values))[:-DROPPED]
            found.setdefault(row["instance"], {})[int(row["batch"])] = kept
    return found


def _noisy(rows: Sequence[dict[str, str]], model: str) -> Rows:
    found: Rows = {}
    for name, by_size in _repeats(rows, model).items():
        for size, kept in by_size.items():
            quantiles = tuple(float(q) for q in np.quantile(kept, (0.5, 0.9, 0.95, 0.99)))
            found.setdefault(name, []).append(
                _latency(size, len(kept), float(kept.mean()), quantiles)
            )
    return found


def _latency(size: int, repeats: int, mean_s: float, quantiles: Sequence[float]) -> Latency:
    p50, p90, p95, p99 = quantiles
    return Latency(
        batch=size, repeats=repeats, mean_s=mean_s, p50_s=p50, p90_s=p90, p95_s=p95, p99_s=p99
    )


def _profile(model: str, setup: Setup, rows: Rows) -> str:
    missing = [name for name in setup.prices if name not in rows]
    if missing:
        raise DataError(
            f"the latencies of {model} on {missing[0]} are missing from the Kairos data"
        )
    entries = tuple(
        Entry(
            task=TASK,
            variant=model,
            device=name,
            operator=OPERATOR,
            weights_sha256="",
            load_s=0.0,
            memory_bytes=0,
            accuracy=1.0,  # the paper has one model per pipeline and states no accuracy
            children={},
            latency=tuple(sorted(rows[name], key=lambda row: row.batch)),
        )
        for name in setup.prices
    )
    return profile_text(ProfileTable(model, entries, {"source": SOURCE}))


def _yaml(model: str, setup: Setup) -> str:
    types = "".join(
        f"    {name}: {{device: emulated, price: {price:g}}}\n"
        for name, price in setup.prices.items()
    )
    return (
        f"# {model} of the Kairos artifact on four EC2 types, without hops between processes.\n"
        f"name: kairos-{model}\n"
        f"slo: {setup.slo_ms[model]:g}ms\n"
        f"comm: 0ms\n"
        f"size: {{most: {setup.most}}}\n"
        f"sizes: {model}.sizes.csv\n"
        f"policy: kairos\n"
        f"tasks:\n  {TASK}:\n    variants:\n      {model}:\n"
        f"        operator: {OPERATOR}\n"
        f"        arguments: {ARGUMENTS}\n"
        f"cluster:\n  types:\n{types}"
        f"  base: {setup.base}\n"
        f"  budget: {setup.budget:g}\n"
        f"profiles: [{model}.profile.json]\n"
    )


def main() -> None:
    """Write the files; compare if asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, metavar="DATA_DIR")
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    parser.add_argument("--compare", nargs="?", type=Path, const=PAGE, metavar="PAGE")
    parser.add_argument("--picks", nargs="?", type=Path, const=PAGE, metavar="PAGE")
    parser.add_argument("--cases", type=int, default=20, help="of --picks to run now (20)")
    parser.add_argument("--again", action="store_true", help="only write the page again")
    parser.add_argument("--seeds", type=int, default=3, help="(3)")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    try:
        for path in write(options.data, options.out):
            print(path)
        if options.compare is not None:
            options.compare.write_text(_compared(options), encoding="utf-8")
            print(options.compare)
        if options.picks is not None:
            options.picks.write_text(_with_picks(options), encoding="utf-8")
            print(options.picks)
    except (DataError, RowFileError) as error:
        parser.exit(2, f"{error}\n")


def _compared(options: argparse.Namespace) -> str:
    from benchmarks.papers import kairos_claims, kairos_climb, kairos_picks
    from benchmarks.papers import kairos_compare as comparison
    from benchmarks.papers.kairos_page import page
    from benchmarks.papers.kairos_sections import sections

    if options.again:
        found = comparison.recorded(options.out).read()
    else:
        climbs = kairos_climb.climbed(options.data, options.out, options.models, options.processes)
        asked = comparison.searches(options.data, options.models, options.seeds)
        asked += kairos_climb.searches_at(list(climbs), options.seeds)
        asked += kairos_claims.claim_searches(options.out, options.models, options.seeds)
        found = list(comparison.searched(options.out, asked, options.processes))
    climbs_found = kairos_climb.recorded_climbs(options.out).read()
    before, claims = sections(found, climbs_found, options.data, options.out)
    found += comparison.oracles(options.out, options.models)
    rankings = comparison.ranking_rows(options.data, options.out)
    text = page(found, rankings, before, claims)
    rows = kairos_picks.recorded(options.out).read()
    earlier = options.compare.read_text(encoding="utf-8") if options.compare.exists() else ""
    picks = kairos_picks.section(rows) if rows else kairos_picks.section_of(earlier)
    return kairos_picks.with_section(text, picks) if picks else text


def _with_picks(options: argparse.Namespace) -> str:
    from benchmarks.papers import kairos_picks

    cases = 0 if options.again else options.cases
    for row in kairos_picks.picked(options.out, options.models, cases, options.processes):
        print(row, flush=True)
    page = options.picks.read_text(encoding="utf-8") if options.picks.exists() else ""
    rows = kairos_picks.recorded(options.out).read()
    return kairos_picks.with_section(page, kairos_picks.section(rows))


if __name__ == "__main__":
    main()
