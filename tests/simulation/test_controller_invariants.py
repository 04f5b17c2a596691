"""The controller keeps its invariants under any sequence of worker faults and commands."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from control.checks.structure_check import check_structure
from control.controller.membership import LOADING_S
from schemas.effects import PLANS
from schemas.pipeline import Policy
from tests.control_world import FakeWorker, World, a_pipeline, a_profile
from tests.property_examples import at_most

WORKERS = ("w0", "w1", "w2", "w3", "w4")
POLICIES = (
    Policy(name="accurate", replicas={"locate/net": 1, "read/vit": 3}),
    Policy(name="wide", replicas={"locate/net": 3, "read/forest": 1}),
    Policy(name="huge", replicas={"locate/net": 9, "read/forest": 1}),
    Policy(name="silent"),
)
COMMANDS = st.one_of(
    st.tuples(
        st.just("apply-policy"),
        st.fixed_dictionaries(
            {"policy": st.sampled_from(["static", "accurate", "wide", "huge", "silent", "none"])}
        ),
    ),
    st.tuples(
        st.sampled_from(["drain", "restore"]),
        st.fixed_dictionaries({"target": st.sampled_from([*WORKERS, "cpu"])}),
    ),
    st.tuples(st.just("rollback"), st.fixed_dictionaries({"epoch": st.integers(1, 9).map(str)})),
    st.tuples(st.sampled_from(["pause", "resume", "replan", "nonsense"]), st.just({})),
    st.tuples(
        st.just("set-slo"), st.fixed_dictionaries({"slo": st.sampled_from(["1s", "9ms", "5"])})
    ),
)


class ControllerMachine(RuleBasedStateMachine):
    """Workers start, die, restart and fill up; commands and other controllers interfere."""

    @initialize(profiled=st.booleans(), slots=st.integers(3, 6), present=st.sets(
        st.sampled_from(WORKERS)))  # fmt: skip
    def begin(self, profiled: bool, slots: int, present: set[str]) -> None:
        pipeline = a_pipeline(policies=POLICIES, slots=slots)
        self.world = World(pipeline, a_profile() if profiled else None)
        self.opened = {"locate": -1, "read": -1}
        self.epoch = self.seen = 0
        self.asked: set[str] = set()
        self.world.start(*sorted(present))

    @rule(name=st.sampled_from(WORKERS), device=st.sampled_from(["cpu", "cuda:0"]))
    def worker_starts_or_restarts(self, name: str, device: str) -> None:
        worker = FakeWorker(name, device, incarnation=self.world.now)
        worker.plan = self.world.plans[-1] if self.world.plans else None
        self.world.workers[name] = worker

    @rule(name=st.sampled_from(WORKERS))
    def worker_dies(self, name: str) -> None:
        self.world.workers.pop(name, None)

    @rule(name=st.sampled_from(WORKERS), queued=st.integers(0, 2))
    def worker_has_work(self, name: str, queued: int) -> None:
        if name in self.world.workers:
            self.world.workers[name].queued = queued

    @rule(name=st.sampled_from(WORKERS), loads=st.booleans())
    def worker_loads_or_is_ready(self, name: str, loads: bool) -> None:
        if name in self.world.workers:
            self.world.workers[name].loads = loads

    @rule(seconds=st.sampled_from([0.1, 0.3, 1.0, 2.5, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.run(seconds)

    @rule(command=COMMANDS)
    def command(self, command: tuple[str, dict[str, str]]) -> None:
        action, arguments = command
        self.world.command(action, **arguments)
        self.asked.add(f"c{self.world.commands}")

    @rule()
    def last_command_is_repeated(self) -> None:
        if self.asked:
            self.world.commands -= 1
            self.world.command("pause")

    @rule(solving=st.booleans())
    def solver_stalls_or_returns(self, solving: bool) -> None:
        self.world.solving = solving
        if solving:
            self.world.finish_solves()

    @rule()
    def controller_restarts(self) -> None:
        # An unanswered command is lost with the controller; the control app reads it again.
        self.asked &= {result.id for result in self.world.results}
        self.world.restart_controller()

    @rule(ahead=st.integers(0, 2))
    def another_controller_writes(self, ahead: int) -> None:
        if self.world.plans:
            plan = replace(self.world.plan, epoch=self.world.plan.epoch + ahead, issued_s=1.0)
            self.world.topic.append(plan)
            self.world.arrive(plan, PLANS)
            self.epoch = max(self.epoch, plan.epoch if ahead else 0)

    @invariant()
    def every_plan_keeps_its_promises(self) -> None:
        assert self.world.rejected == []
        for plan in self.world.plans[self.seen :]:
            assert check_structure(plan, self.world.pipeline) == ()
            assert plan.epoch > self.epoch
            self.epoch = plan.epoch
            for task in self.opened:
                read = [s for lease in plan.leases if lease.task == task for s in lease.slots]
                self.opened[task] = max([self.opened[task], *read])
                if any(lease.task == task for lease in plan.leases):
                    assert sorted(read) == list(range(self.opened[task] + 1))
        self.seen = len(self.world.plans)

    @invariant()
    def commands_are_answered_at_most_once(self) -> None:
        answered = [result.id for result in self.world.results]
        assert len(answered) == len(set(answered))

    def teardown(self) -> None:
        """Check that finally every command is answered and every live worker is in the plan or
        drained."""
        world = self.world
        world.workers.setdefault("w0", FakeWorker("w0", incarnation=world.now))
        world.solving = True
        world.finish_solves()
        world.run(LOADING_S + 2.0)
        self.every_plan_keeps_its_promises()
        self.commands_are_answered_at_most_once()
        assert self.asked <= {result.id for result in world.results}
        assert {lease.worker for lease in world.plan.leases} <= set(world.workers)


TestController = ControllerMachine.TestCase
TestController.settings = settings(max_examples=at_most(60), stateful_step_count=30, deadline=None)
