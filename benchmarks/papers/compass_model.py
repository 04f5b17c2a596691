"""The modelled benchmark of query plans: five applications and the queries drawn for them.

No figure is measured: the model is ``benchmark_model.json`` (constants chosen to be realistic),
drawn as its status line describes. Accuracy is log-additive in the knobs with interactions;
stage seconds are those of an A100 times the query's work; samples are Bernoulli or Beta draws.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.sources import DataError
from control.policies.compass.search.camo import Slo
from control.policies.compass.search.composition import Deployment
from control.problem.space import Knob, Space, Stage

Floats = NDArray[np.float64]

EDGE, NEAR, CLOUD = "edge", "near", "cloud"
TIERS = (EDGE, NEAR, CLOUD)
CPU_ON_EDGE = 3.0
RETURN_MB = 0.002
MB_BYTES = 1e6
MEMORY = 1.15  # of the model's size


@dataclass(frozen=True)
class Application:
    """One application of the model, with its data."""

    name: str
    data: Mapping[str, Any]
    model: Mapping[str, Any]
    tiers: tuple[str, ...] = TIERS  # the edge is the first

    @cached_property
    def space(self) -> Space:
        """Knobs and placements on the tiers."""
        stages, knobs, parent = [], [], ""
        for each in self.data["ops"]:
            stages.append(
                Stage(each["name"], parent, self.tiers, cpu=each["cpu_stage"], batched=each["llm"])
            )
            parent = each["name"]
            for knob in each["knobs"]:
                names = tuple(option["option"] for option in knob["options"])
                knobs.append(Knob(each["name"], knob["knob"], names))
        return Space(tuple(stages), tuple(knobs), self.tiers)

    @property
    def most_samples(self) -> int:
        """The fixed number of samples of non-adaptive profilers."""
        return int(self.data["n_fixed_samples"])

    @property
    def parallelism(self) -> float:
        """The speed-up of profiling over one sample at a time."""
        return float(self.data["profile_parallelism"])

    @cached_property
    def seconds(self) -> Floats:
        """A100 seconds per configuration and stage at work 1."""
        return np.stack([self._stage(op)[0] for op in self.data["ops"]], axis=1)

    @cached_property
    def memory(self) -> Floats:
        """GB per configuration and stage, with the overhead."""
        return MEMORY * np.stack([self._stage(op)[1] for op in self.data["ops"]], axis=1)

    @cached_property
    def sent(self) -> Floats:
        """Bytes of every hop: into each stage, and back."""
        rows = self.space.configurations
        at = {knob.name: index for index, knob in enumerate(self.space.knobs)}
        columns = [np.full(len(rows), float(self.data["raw_input_mb"]))]
        for op in self.data["ops"]:
            depends, sizes = op["output_depends_on"], np.array(op["output_mb"])
            columns.append(sizes[rows[:, at[depends]]] if depends else np.full(len(rows), sizes[0]))
        columns[-1] = np.full(len(rows), RETURN_MB)
        return np.stack(columns, axis=1) * MB_BYTES

    def _stage(self, op: Mapping[str, Any]) -> tuple[Floats, Floats]:
        """Return seconds (knobs add) and GB (the largest model) of one operator."""
        rows = self.space.configurations
        at = {knob.name: index for index, knob in enumerate(self.space.knobs)}
        seconds = np.full(len(rows), float(op.get("fixed_a100_seconds", 0.0)))
        memory = np.full(len(rows), float(op.get("model_gb", 0.0)))
        for knob in op["knobs"]:
            chosen = rows[:, at[knob["knob"]]]
            seconds += np.array([each["a100_seconds"] for each in knob["options"]])[chosen]
            sizes = np.array([float(each["model_gb"]) for each in knob["options"]])
            memory = np.maximum(memory, sizes[chosen])
        for factor in op.get("time_multipliers", ()):
            seconds *= np.array(factor["factors"])[rows[:, at[factor["knob"]]]]
        return seconds, memory


@dataclass(frozen=True)
class Group:
    """A data set: the parameters that its queries share."""

    sensitivity: Floats
    base: float
    offsets: tuple[Floats, ...]
    interactions: Mapping[tuple[int, int], Floats]
    work: float


@dataclass(frozen=True)
class DrawnQuery:
    """One query: true accuracies and seconds, its tiers and links, and its SLO."""

    app: Application
    number: int
    accuracy: Floats
    seconds: Floats
    deployment: Deployment
    slo: Slo

    @cached_property
    def latency(self) -> Floats:
        """True seconds of every plan, one whole GPU per operator."""
        found = self.deployment.latency(self.seconds, self.app.sent)
        return np.where(self.deployment.fits, found, np.inf)

    def compliant(self, configuration: int) -> bool:
        """Return whether some placement of the configuration truly meets the SLO."""
        quick = bool((self.latency[configuration] <= self.slo.latency_s).any())
        return quick and float(self.accuracy[configuration]) >= self.slo.accuracy

    def scores(self, configuration: int, samples: int) -> Floats:
        """Return the scores of the first samples; deterministic per query and configuration."""
        seed = [self.number, configuration, len(self.app.name)]
        rng = np.random.default_rng(seed)
        mean, spread = float(self.accuracy[configuration]), self.app.data["sample_sd"]
        if spread is None:
            return (rng.random(samples) < mean).astype(np.float64)
        spread = min(float(spread), 0.95 * float(np.sqrt(mean * (1 - mean))))
        strength = mean * (1 - mean) / spread**2 - 1
        return rng.beta(mean * strength, (1 - mean) * strength, samples)


def applications(data: Path) -> dict[str, Application]:
    """Return the applications of the data. Raises ``DataError`` if the file is missing."""
    path = data / "benchmark_model.json"
    try:
        model = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} holds no model of the Compass benchmark ({error})") from error
    return {name: Application(name, each, model) for name, each in model["apps"].items()}


def group(app: Application, rng: np.random.Generator) -> Group:
    """Draw one data set."""
    options = [len(knob.options) for knob in app.space.knobs]
    return Group(
        sensitivity=rng.lognormal(0, 0.45, len(options)),
        base=float(rng.uniform(0.72, 0.93)),
        offsets=tuple(rng.normal(0, 0.03, count) for count in options),
        interactions={
            (later, earlier): rng.normal(0, 0.02, (options[later], options[earlier]))
            for later in range(len(options))
            for earlier in range(later)
        },
        work=float(rng.lognormal(0, 0.25)),
    )


def query(app: Application, of: Group, number: int, rng: np.random.Generator) -> DrawnQuery:
    """Draw one query of a data set, with its device, link and SLO."""
    accuracy = _accuracy(app, of, rng)
    work = of.work * float(rng.lognormal(0, 0.15))
    seconds = app.seconds * work * rng.lognormal(0, 0.15, app.seconds.shape[1])
    deployment = _deployment(app, rng)
    latency = np.where(deployment.fits, deployment.latency(seconds, app.sent), np.inf)
    floor, limit = _pareto_point(accuracy, latency, rng)
    slo = Slo(accuracy=0.85 * floor, latency_s=1.5 * limit)
    return DrawnQuery(app, number, accuracy, seconds, deployment, slo)


def _accuracy(app: Application, of: Group, rng: np.random.Generator) -> Floats:
    rows = app.space.configurations
    sensitivity = of.sensitivity * rng.lognormal(0, 0.25, len(of.sensitivity))
    total = np.zeros(len(rows))
    knobs = [knob for op in app.data["ops"] for knob in op["knobs"]]
    for index, knob in enumerate(knobs):
        quality = np.log([option["quality"] for option in knob["options"]])
        own = rng.normal(0, 0.012, len(quality))
        total += (sensitivity[index] * quality + of.offsets[index] + own)[rows[:, index]]
    for (later, earlier), effect in of.interactions.items():
        total += effect[rows[:, later], rows[:, earlier]]
    base = float(np.clip(of.base + rng.normal(0, 0.03), 0.5, 0.97))
    total -= max(0.0, float(total.max()) + float(np.log(base / 0.985)))
    return np.clip(base * np.exp(total), 0.02, 0.985)


def _deployment(app: Application, rng: np.random.Generator) -> Deployment:
    tiers, network = app.model["tiers"], app.model["network"]
    devices = tiers["edge"]
    pick = int(rng.choice(len(devices), p=[each["probability"] for each in devices]))
    edge_speed = devices[pick]["speed"] * float(rng.lognormal(0, 0.1))
    upload = network["edge_upload_mbps"] * float(np.clip(rng.lognormal(-0.1, 0.35), 0.2, 2.5))
    others = [tier for tier in app.tiers if tier != EDGE]
    return deployment(
        app,
        speed={EDGE: edge_speed, **{tier: tiers[tier]["speed"] for tier in others}},
        gigabytes={
            EDGE: devices[pick]["mem_gb"],
            **{tier: tiers[tier]["mem_gb"] for tier in others},
        },
        upload_mbps=upload,
    )


def deployment(
    app: Application,
    speed: Mapping[str, float],
    gigabytes: Mapping[str, float],
    upload_mbps: float,
) -> Deployment:
    """Return the tiers and links of a session with this device and upload rate."""
    tiers, network, space = app.model["tiers"], app.model["network"], app.space
    placements, stages = space.placements, space.stages
    is_edge = placements == space.tiers.index(EDGE)
    of_tier = np.array([speed[tier] for tier in space.tiers])[placements]
    room = np.array([float(gigabytes[tier]) for tier in space.tiers])[placements]
    cost = [0.0 if tier == EDGE else tiers[tier]["usd_per_gpu_h"] for tier in space.tiers]
    price = np.array(cost)[placements]
    cpu = np.array([stage.cpu for stage in stages])
    slowdown = np.where(cpu, np.where(is_edge, CPU_ON_EDGE, 1.0), 1 / of_tier)
    ends = np.zeros((len(placements), 1), dtype=placements.dtype)  # at the edge, first tier
    froms = np.concatenate([ends, placements], axis=1)
    tos = np.concatenate([placements, ends], axis=1)
    moves = froms != tos
    fits = app.memory[:, None, :] <= np.where(cpu, np.inf, room)[None]
    leaves_edge = froms == space.tiers.index(EDGE)
    rate = np.where(leaves_edge, upload_mbps, network["other_mbps"]) * 1e6 / 8
    return Deployment(
        space=space,
        slowdown=slowdown.T,
        per_byte=np.where(moves, 1 / rate, 0.0).T,
        delay=np.where(moves, network["t0_s"], 0.0).T,
        price=np.where(cpu, 0.0, price).T,
        memory=app.memory,
        capacity=room.T,
        fits=np.all(fits, axis=2),
        own_tiers=frozenset({EDGE}),
    )


def _pareto_point(
    accuracy: Floats, latency: Floats, rng: np.random.Generator
) -> tuple[float, float]:
    """Draw a point uniformly from the Pareto front of accuracy and latency."""
    quickest = latency.min(axis=1)
    # Only the fastest placement of a configuration can be on the front.
    order = np.lexsort((-accuracy, quickest))
    front, best = [], -np.inf
    for c in order.tolist():
        if np.isfinite(quickest[c]) and accuracy[c] > best + 1e-9:
            front.append(c)
            best = accuracy[c]
    c = front[int(rng.integers(len(front)))]
    return float(accuracy[c]), float(quickest[c])


def draw(app: Application, queries: int, seed: int) -> Sequence[DrawnQuery]:
    """Draw queries from the application's data sets in turn."""
    rng = np.random.default_rng(seed)
    groups = [group(app, rng) for _ in range(int(app.data["groups"]))]
    return [query(app, groups[n % len(groups)], n, rng) for n in range(queries)]
