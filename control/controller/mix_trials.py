"""Play the candidate mixes for renting, one after another, outside the event loop.

A choice of devices by bounds and estimates takes force at once. Candidate mixes are played
meanwhile (``control/policies/kairos/mix_play.py``), for at most ``WITHIN_S`` after the list of
candidates last changed. A result is valid until the service times or the policy change.
"""

from control.policies.kairos.mix_play import MixProblem, QueryDraws, playable
from control.policies.kairos.provisioning import Pool
from control.policies.kairos.renting import Mix, bound_of
from control.policies.solvers import MIX
from schemas.effects import Effect, Failed, Solve, Solved
from schemas.pipeline import Policy

WITHIN_S = 20.0
FIRST_JOB = 1 << 42  # job numbers of plays are above; of plans, tables and sessions below


class MixTrials:
    """Plays of mixes; ``played`` is the queries/s that each carried, None for one not played."""

    def __init__(self, draws: QueryDraws) -> None:
        self.played: dict[Mix, float | None] = {}
        self._draws = draws
        self._problem: tuple[Pool, Policy] | None = None
        self._asked: tuple[Mix, ...] = ()
        self._until_s = 0.0
        self._job = FIRST_JOB
        self._playing: Mix | None = None

    def change(self, pool: Pool, policy: Policy) -> None:
        """Set the pool and the policy; discard plays with other service times."""
        if self._problem is None or _service(*self._problem) != _service(pool, policy):
            self.played, self._asked, self._playing = {}, (), None
        self._problem = pool, policy

    def ask(self, mixes: tuple[Mix, ...], now: float) -> None:
        """Set the mixes to play, in order."""
        if mixes != self._asked:
            self._asked, self._until_s = mixes, now + WITHIN_S

    def next(self, now: float) -> list[Effect]:
        """Return the play of the next mix, unless one is in flight or none is left."""
        if self._problem is None or self._playing is not None:
            return []
        pool, policy = self._problem
        for mix in self._asked:
            if mix in self.played:
                continue
            problem = MixProblem(
                pool=pool, policy=policy, mix=mix, bound_qps=bound_of(pool, mix),
                draws=self._draws,
            )  # fmt: skip
            if now < self._until_s and playable(problem):
                self._playing, self._job = mix, self._job + 1
                return [Solve(self._job, MIX, problem)]
            self.played[mix] = None
        return []

    def ended(self, event: Solved | Failed) -> bool:
        """Record the end of a play; return whether it was one. Ignore the result of a play with
        outdated service times."""
        if isinstance(event.job, str) or event.job < FIRST_JOB:
            return False
        if event.job == self._job and self._playing is not None:
            self.played[self._playing] = event.plan if isinstance(event, Solved) else None
            self._playing = None
        return True


def _service(pool: Pool, policy: Policy) -> tuple[object, ...]:
    """Return the inputs that a mix's throughput depends on, without prices and limits of types."""
    return pool.sizes, pool.latency_s, pool.worst_s, pool.slo_s, policy
