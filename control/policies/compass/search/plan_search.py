"""The paper's search: a Gaussian process predicts the latency of whole plans.

``SessionSearch`` composes latencies from the seconds of stages. This search learns the logarithm of
the latency of configuration and placement together, and proposes the plan with the largest

    U = Pr[accuracy >= floor] * Pr[latency <= SLO] / (predicted latency)

(Compass, Section 4.1), also once a compliant plan is known. Past searches predict only the
accuracy, because they have no latencies of whole plans. The other parts are those of
``SessionSearch``.
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr

from control.policies.compass.search.camo import (
    Floats,
    Past,
    Profiled,
    SearchOptions,
    SessionSearch,
    Slo,
)
from control.policies.compass.search.composition import Deployment
from control.policies.compass.search.gaussian_process import GaussianProcess, Kernel
from control.policies.compass.search.pricing import Priced

SPREAD = 1.0  # of a latency's logarithm before the first profile
LEAST_S = 1e-6  # of a plan's latency: a coarse clock may measure 0, which has no logarithm
NOISE = 1e-4  # variance of a profiled latency's logarithm


class PlanSearch(SessionSearch):
    """A ``SessionSearch`` with the paper's model of latency."""

    def __init__(
        self,
        deployment: Deployment,
        slo: Slo,
        options: SearchOptions,
        sent: Floats | None,
        history: Sequence[Past] = (),
    ) -> None:
        """As ``SessionSearch``."""
        super().__init__(deployment, slo, options, sent, history)
        space = deployment.space
        knobs, tiers = space.configurations, space.placements
        codes = np.hstack(
            [np.repeat(knobs, len(tiers), axis=0), np.tile(tiers, (len(knobs), 1))]
        )  # a row for each plan, placements of a configuration together
        self._latency = GaussianProcess(
            codes,
            [0] * knobs.shape[1] + [1] * tiers.shape[1],
            Kernel((0.3, 0.3), SPREAD**2),
            prior_mean=float(np.log(slo.latency_s)),
            fit=True,
        )

    def tell(self, found: Profiled) -> tuple[Priced, ...]:
        """Record a profile, as ``SessionSearch``; the latency is that of its proposed placement."""
        c = found.configuration
        confirmed = self._confirmed(c)
        if confirmed is None:
            placement = int(np.argmax(self._ranked(self._likely()[0])[1][c]))
        else:
            placement = confirmed.placement
        added = super().tell(found)
        sent = self._hops.bytes[c]
        seconds = np.array(found.seconds)[None]
        latency = self.deployment.latency(seconds, sent[None], [c])[0, placement]
        if np.isfinite(latency):
            at = c * self.deployment.fits.shape[1] + placement
            self._latency.tell(at, float(np.log(max(latency, LEAST_S))), NOISE)
        return added

    def _ranked(self, likely: Floats) -> tuple[Floats, Floats]:
        shape = self.deployment.fits.shape
        mean = self._latency.mean.reshape(shape).astype(np.float64)
        deviation = self._latency.sd.reshape(shape)
        quick: Floats = ndtr((np.log(self.slo.latency_s) - mean) / deviation) * self.deployment.fits
        return quick, likely[:, None] * quick / np.exp(mean)
