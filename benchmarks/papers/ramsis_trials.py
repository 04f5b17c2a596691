"""The workers of a comparison, and trials by which baselines choose a model and a largest batch.

tuned(cluster, qps)                             # nothing is dropped, one central queue
tuned_dropping(cluster, qps, from_one_queue)    # by our dropping
tuned_dropping(cluster, qps, sent_in_runs(8))   # by our dropping, runs and admission
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.papers.ramsis_baselines import TOLERATED, Fixed, held, jellyfish, tuned_static
from benchmarks.papers.ramsis_queues import (
    Decide,
    Planned,
    Rescue,
    Seen,
    always,
    capped,
    central,
    decided,
    in_runs,
    round_robin,
)
from control.per_query.run_admission import wait_s
from control.policies import POLICIES
from control.policies.option_fields import LONGEST_RUN
from control.policies.ramsis.pareto_models import CandidateModel
from control.policies.ramsis.table_leases import lease_batch, most_throughput
from control.policies.ramsis.tables import OPTIONS, Ask, Table, setting_for
from headrace.arrivals.arrival_processes import poisson

OURS = "ramsis"
LENGTHS = tuple(range(1, LONGEST_RUN.of(POLICIES[OURS].usual) + 1))
STATIC_TRIAL_S = 60.0
UNSTABLE = 0.97  # of the load: choices with less throughput need no trial
TRIAL_SEED = 1_000_000  # far from the seeds of the runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Workers that hold all models, fastest first; latencies in seconds by batch."""

    models: tuple[CandidateModel, ...]
    slo_s: float
    workers: int

    def by_turn(self) -> Rescue:
        """Return the lease's model and batch, one by one: half of the SLO is for the queue."""
        return capped(*most_throughput(setting_for(OPTIONS[OURS], ask_of(self, 0.0))))

    def lease(self) -> Fixed:
        """Return the lease's model and batch in runs: they serve most of an overload."""
        setting = setting_for(OPTIONS[OURS], ask_of(self, 0.0))
        model, batch = lease_batch(setting, LENGTHS, admitted=True)
        return Fixed(model.name, batch)

    def named(self, name: str) -> CandidateModel:
        """Return the model of that name."""
        return next(model for model in self.models if model.name == name)

    def rescue(self, choice: Fixed) -> Rescue:
        """Return a choice as the rescue batch."""
        return capped(self.named(choice.model), choice.most)

    def planned(self, choice: Fixed) -> Planned:
        """Return what ingress admits to runs by where workers hold this choice."""
        batch_s = self.named(choice.model).latency_s[choice.most - 1]
        query_s = batch_s / choice.most
        longest_s = wait_s(self.slo_s, choice.most, batch_s, self.workers / query_s)
        return Planned(query_s, longest_s)


def ask_of(cluster: Cluster, qps: float) -> Ask:
    """Return the input of a table for that load."""
    return Ask(models=cluster.models, slo_s=cluster.slo_s, workers=cluster.workers, qps=qps)


# Cluster, arrivals, choice, its decisions, most late queries -> counts, with our dropping.
Serve = Callable[[Cluster, Sequence[float], Fixed, Decide, float], Seen]


def from_one_queue(
    cluster: Cluster, times_s: Sequence[float], choice: Fixed, decide: Decide, most_late: float
) -> Seen:
    """Serve a central queue."""
    rescue = cluster.rescue(choice)
    return central(times_s, cluster.workers, decide, cluster.slo_s, rescue, most_late)


def by_turn(
    cluster: Cluster, times_s: Sequence[float], choice: Fixed, decide: Decide, most_late: float
) -> Seen:
    """Serve by round robin, one by one."""
    rescue = cluster.rescue(choice)
    return round_robin(times_s, cluster.workers, decide, cluster.slo_s, rescue, most_late)


def sent_in_runs(run: int) -> Serve:
    """Return serving in runs of that length, as ingress admits them for the choice."""

    def serve(
        cluster: Cluster, times_s: Sequence[float], choice: Fixed, decide: Decide, most_late: float
    ) -> Seen:
        return in_runs(
            times_s,
            cluster.workers,
            decide,
            cluster.slo_s,
            cluster.rescue(choice),
            lambda now: run,
            cluster.planned(choice),
            most_late,
        )

    return serve


def tuned(cluster: Cluster, qps: float) -> Fixed:
    """Return the tuned static choice; if none passes its trial, that of Jellyfish+."""
    short = Trials.drawn(cluster, qps, STATIC_TRIAL_S)
    found = tuned_static(cluster.models, cluster.slo_s, short.violation)
    return found or jellyfish(cluster.models, cluster.slo_s, qps / cluster.workers)


def tuned_dropping(cluster: Cluster, qps: float, serve: Serve) -> Fixed:
    """Return the tuned static choice where late queries are dropped, by trials of ``serve``.

    If none passes, the choice with the least violation of the model that serves most in time.
    """
    trials = Trials.drawn(cluster, qps, STATIC_TRIAL_S)
    found = tuned_static(
        cluster.models,
        cluster.slo_s,
        lambda choice: trials.dropping(serve, choice, TOLERATED),
    )
    if found is not None:
        return found
    model = cluster.named(cluster.lease().model)
    batches = [b for b, s in enumerate(model.latency_s, start=1) if s <= cluster.slo_s]
    choices = [Fixed(model.name, batch) for batch in batches]
    return min(choices, key=lambda choice: trials.dropping(serve, choice))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """Simulations of one load with fixed arrivals, with a central queue if nothing else is said."""

    cluster: Cluster
    qps: float
    times_s: Sequence[float]

    @classmethod
    def drawn(cls, cluster: Cluster, qps: float, seconds: float) -> "Trials":
        """Return trials with arrivals from a separate seed."""
        times = poisson(qps, seconds, np.random.default_rng(TRIAL_SEED)).tolist()
        return cls(cluster=cluster, qps=qps, times_s=times)

    def violation(self, choice: Fixed) -> float:
        """Return the violation of a choice; 1 if it exceeds the tolerated one."""
        if self._unstable(choice):
            return 1.0
        cluster, most_late = self.cluster, TOLERATED * len(self.times_s)
        seen = central(
            self.times_s, cluster.workers, self._decide(choice), cluster.slo_s, most_late=most_late
        )
        return seen.violation if seen.served == len(self.times_s) else 1.0

    def dropping(self, serve: Serve, choice: Fixed, most: float = 1.0) -> float:
        """Return the violation of a choice with dropping; 1 if it exceeds ``most`` below 1."""
        if most < 1 and self._unstable(choice):
            return 1.0
        most_late = most * len(self.times_s)
        seen = serve(self.cluster, self.times_s, choice, self._decide(choice), most_late)
        return 1.0 if seen.late > most_late else seen.violation

    def _unstable(self, choice: Fixed) -> bool:
        latency_s = self.cluster.named(choice.model).latency_s
        most = max(b / s for b, s in enumerate(latency_s[: choice.most], start=1))
        return self.cluster.workers * most < UNSTABLE * self.qps

    def _decide(self, choice: Fixed) -> Decide:
        cluster = self.cluster
        return decided(
            [held(choice, cluster.models, cluster.slo_s, self.qps)], cluster.models, always
        )

    def of_table(self, table: Table) -> tuple[float, float]:
        """Return accuracy and violation with our rescue and dropping of late queries."""
        cluster = self.cluster
        decide = decided([table], cluster.models, always)
        rescue = cluster.rescue(cluster.lease())
        seen = central(self.times_s, cluster.workers, decide, cluster.slo_s, rescue)
        return seen.accuracy, seen.violation
