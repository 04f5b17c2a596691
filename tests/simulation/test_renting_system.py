"""The production controller rents and releases devices in virtual time."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from control.policies.kairos.query_sizes import SizeDistribution
from headrace.arrivals.arrival_processes import Rates
from headrace.config.pipeline_file import read_pipeline_file
from headrace.simulation.faults import CONTROL_DOWN, DEATH, Fault
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import Ended, simulated
from schemas.effects import Effect, Event, Scale, Send
from schemas.records import Plan
from tests.typed_files import RENTING, a_typed_file

FILED = SizeDistribution((10, 100, 1000), (0.5, 0.4, 0.1))
PRICES = {"gpu": 0.5, "slow": 0.2}


@dataclass
class Asked:
    """Observe the requested device counts with their times, and the mixes of the plans."""

    scaled: list[tuple[float, str, int]] = field(default_factory=list)
    mixes: list[dict[str, int]] = field(default_factory=list)

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        for effect in effects:
            if isinstance(effect, Scale):
                self.scaled.append((now, effect.type, effect.count))
            if isinstance(effect, Send) and isinstance(effect.record, Plan):
                self.mixes.append(dict(effect.record.mix))

    @property
    def by_effects(self) -> dict[str, int]:
        """Return the mix that follows from the effects alone."""
        return {"gpu": 0, "slow": 1} | {type_: count for _, type_, count in self.scaled}


def played(
    folder: Path, rates: list[float], *faults: Fault, sizes: SizeDistribution = FILED
) -> tuple[Ended, Asked]:
    file = read_pipeline_file(a_typed_file(folder, RENTING))
    asked = Asked()
    run = Run(
        file=file, policy="kairos", seed=1, arrivals=Rates(tuple(rates)), faults=faults, sizes=sizes
    )
    return simulated(run, lambda sent: None, [asked]), asked


@pytest.mark.thorough
def test_the_mix_follows_the_demand_and_no_query_is_lost(tmp_path: Path) -> None:
    ended, asked = played(tmp_path, [5.0] * 40 + [35.0] * 60 + [5.0] * 60)
    counts = ended.metrics.counts
    assert counts["lost"] == 0
    assert asked.mixes[-1] == asked.by_effects == {"gpu": 0, "slow": 1}
    assert {"gpu": 1, "slow": 0} in asked.mixes
    assert len(asked.scaled) <= 8  # up and down once, plus noise
    assert all(sum(PRICES[t] * n for t, n in mix.items()) <= 1.2 + 1e-9 for mix in asked.mixes)
    assert ended.usd_per_h is not None
    assert 0.2 < ended.usd_per_h < 0.55


@pytest.mark.thorough
def test_a_controller_that_restarts_goes_on_from_the_mix_of_its_last_plan(tmp_path: Path) -> None:
    fault = Fault(at_s=30.0, kind=CONTROL_DOWN, for_s=2.0)
    ended, asked = played(tmp_path, [30.0] * 60, fault)
    assert ended.metrics.counts["lost"] == 0
    after = asked.mixes[-1]
    assert after == asked.by_effects == {"gpu": 1, "slow": 0}


@pytest.mark.thorough
@pytest.mark.parametrize(("notice_s", "in_time"), [(0.0, 0.85), (30.0, 0.99)])
def test_a_device_that_is_revoked_is_rented_anew_and_serves_meanwhile(
    tmp_path: Path, notice_s: float, in_time: float
) -> None:
    fault = Fault(at_s=50.0, kind=DEATH, device="gpu-0", notice_s=notice_s)
    ended, asked = played(tmp_path, [30.0] * 90, fault)
    counts = ended.metrics.counts
    assert counts["lost"] == 0
    assert counts["answered"] > in_time * ended.queries
    assert asked.mixes[-1] == {"gpu": 1, "slow": 0}


@pytest.mark.thorough
def test_a_device_that_was_released_while_it_was_dead_does_not_come_back(tmp_path: Path) -> None:
    """It used to serve again, without a price."""
    file = read_pipeline_file(a_typed_file(tmp_path, RENTING))
    seen_s: list[float] = []

    class Returned:
        def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
            seen_s.extend([now] if node == "slow-0" else [])

    fault = Fault(at_s=40.0, kind=DEATH, device="slow-0", for_s=2.0)
    run = Run(file=file, policy="kairos", seed=1, arrivals=Rates((30.0,) * 50), faults=(fault,),
              sizes=FILED)  # fmt: skip
    ended = simulated(run, lambda sent: None, [Returned()])
    assert max(seen_s) - ended.first_s < 40.0  # released when the demand rose


@pytest.mark.thorough
def test_other_sizes_lead_to_another_mix_within_seconds(tmp_path: Path) -> None:
    """In the file half of the queries are small. In the run all are large, so one device is too
    few."""
    ended, asked = played(tmp_path, [20.0] * 90, sizes=SizeDistribution((1000,), (1.0,)))
    assert ended.metrics.counts["lost"] == 0
    assert asked.mixes[-1] == {"gpu": 2, "slow": 0}
    at_s = next(at for at, type_, count in asked.scaled if (type_, count) == ("gpu", 2))
    # A thousand queries at 20/s, plus a few seconds for the test and the decision.
    assert at_s - ended.first_s == pytest.approx(50.0, abs=8.0)
