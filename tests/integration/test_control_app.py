"""The control app on a real broker: plans, commands, history, restart."""

import asyncio
import json
import multiprocessing
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.process import BaseProcess

import faust
import psutil
import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from msgspec import structs

from control.controller.controller import Controller
from control.rollout.history import REMEMBERED_PLANS
from headrace.client.topic_clients import retained_plans
from schemas.codec.single_object import decode, encode
from schemas.effects import COMMAND_RESULTS, COMMANDS, PLANS, QUERIES, REPORTS
from schemas.pipeline import Pipeline, Policy
from schemas.records import Command, CommandResult, Plan, Record, Settings
from streams.control_app import app as control_app
from streams.control_app.app import make_app, run_control_app, started
from streams.control_app.control_driver import ControlDriver
from streams.control_app.election import Election
from streams.kafka.admin.topic_admin import ensure_topics
from streams.kafka.kafka_client import consumer, producer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.topics import physical, topics
from tests.control_world import FakeWorker, a_pipeline, a_profile

pytestmark = pytest.mark.kafka

WAIT_S = 40.0
ACCURATE = Policy(name="accurate", replicas={"locate/net": 1, "read/vit": 2})
HUGE = Policy(name="huge", replicas={"locate/net": 65})


@dataclass
class Cluster:
    """Fake workers that report over the broker, and the records of the control app."""

    pipeline: Pipeline
    kafka: KafkaConfig
    workers: dict[str, FakeWorker] = field(default_factory=dict)
    plans: list[Plan] = field(default_factory=list)
    results: list[CommandResult] = field(default_factory=list)
    apps: list[BaseProcess] = field(default_factory=list)

    def __post_init__(self) -> None:
        ensure_topics(self.kafka, topics(self.pipeline))
        self._producer = producer(self.kafka)
        self._consumer = consumer(self.kafka, f"{self.pipeline.name}.test")
        self._consumer.assign(
            [
                TopicPartition(physical("", logical), 0, OFFSET_BEGINNING)
                for logical in (PLANS, COMMAND_RESULTS)
            ]
        )
        self._report_at = 0.0
        for name in ("w0", "w1", "w2"):
            self.workers[name] = FakeWorker(name, incarnation=time.time())

    def start_app(self) -> BaseProcess:
        app = multiprocessing.get_context("spawn").Process(
            target=run_control_app,
            args=(self.pipeline, partial(Controller, self.pipeline, a_profile(), 3), self.kafka),
        )
        app.start()
        self.apps.append(app)
        return app

    def until(self, holds: Callable[[], object], what: str) -> float:
        """Send reports of the workers until a condition holds; return the seconds waited."""
        began = time.monotonic()
        while not holds():
            assert time.monotonic() - began < WAIT_S, f"waited {WAIT_S:g} s for {what}"
            self.step()
        return time.monotonic() - began

    def step(self) -> None:
        if time.monotonic() >= self._report_at:
            self._report_at = time.monotonic() + 0.2
            for name in sorted(self.workers):
                report = self.workers[name].report(time.time())
                self.write(REPORTS, encode(structs.replace(report, pipeline=self.pipeline.name)))
        for message in self._consumer.consume(50, timeout=0.02):
            assert message.error() is None
            if message.value():
                self._read(decode(message.value()))

    def _read(self, record: Record) -> None:
        if isinstance(record, Plan) and record.pipeline == self.pipeline.name:
            self.plans.append(record)
            for worker in self.workers.values():
                worker.plan = record
        elif isinstance(record, CommandResult) and record.pipeline == self.pipeline.name:
            self.results.append(record)

    def write(self, logical: str, value: bytes, key: str = "") -> None:
        self._producer.produce(physical("", logical), value, key, partition=0)
        self._producer.poll(0)

    def command(self, action: str, **arguments: str) -> CommandResult:
        """Send a command and wait for its result."""
        command = Command(
            id=uuid.uuid4().hex,
            pipeline=self.pipeline.name,
            action=action,
            arguments=arguments,
            issued_s=time.time(),
        )
        self.write(COMMANDS, encode(command))
        return self.answer(command.id)

    def answer(self, command_id: str) -> CommandResult:
        found: list[CommandResult] = []

        def there() -> list[CommandResult]:
            found[:] = [result for result in self.results if result.id == command_id]
            return found

        self.until(there, f"the answer to {command_id}")
        return found[0]

    def variants(self) -> dict[str, str]:
        return {lease.worker: f"{lease.task}/{lease.variant}" for lease in self.plans[-1].leases}

    def close(self) -> None:
        for app in self.apps:
            app.kill()
            app.join()
        self._producer.flush(10)
        self._consumer.close()


@pytest.fixture
def cluster(broker: str) -> Iterator[Cluster]:
    pipeline = a_pipeline(policies=(ACCURATE, HUGE))
    pipeline = replace(pipeline, name=f"p{uuid.uuid4().hex[:8]}")
    found = Cluster(pipeline, KafkaConfig(broker))
    yield found
    found.close()


def test_plans_commands_and_a_lost_worker(cluster: Cluster) -> None:
    cluster.start_app()
    cluster.until(lambda: cluster.plans, "the first plan")
    assert cluster.plans[-1].epoch == 1
    assert cluster.variants() == {"w0": "locate/net", "w1": "read/forest", "w2": "read/forest"}

    result = cluster.command("apply-policy", policy="accurate")
    assert (result.ok, result.epoch) == (True, 2)
    cluster.until(lambda: cluster.plans[-1].epoch == 2, "the plan of the command")
    assert cluster.variants() == {"w0": "locate/net", "w1": "read/vit", "w2": "read/vit"}

    refused = cluster.command("apply-policy", policy="huge")
    assert (refused.ok, refused.epoch) == (False, 2)
    assert "which has 64 slots" in refused.message
    assert "did you mean 'accurate'" in cluster.command("apply-policy", policy="acurate").message

    typed = {
        "id": f"{cluster.pipeline.name}-typed",
        "action": "set-slo",
        "arguments": {"slo": "1s"},
    }
    cluster.write(COMMANDS, json.dumps({**typed, "pipeline": cluster.pipeline.name}).encode())
    assert cluster.answer(typed["id"]).ok
    garbled = {"id": f"{cluster.pipeline.name}-garbled", "pipeline": cluster.pipeline.name, "x": 1}
    cluster.write(COMMANDS, json.dumps(garbled).encode())
    assert "unknown key 'x'" in cluster.answer(garbled["id"]).message

    alive = time.monotonic()
    cluster.until(lambda: time.monotonic() > alive + 0.5, "every worker to say that it serves")
    del cluster.workers["w2"]
    cluster.until(lambda: cluster.plans[-1].reason.startswith("lost w2"), "the loss of w2")
    assert [(x.worker, x.slots) for x in cluster.plans[-1].leases] == [("w0", (0,)), ("w1", (0, 1))]


def test_a_replacement_app_restores_settings_and_executes_waiting_commands(
    cluster: Cluster,
) -> None:
    first = cluster.start_app()
    cluster.until(lambda: cluster.plans, "the first plan")
    assert cluster.command("apply-policy", policy="accurate").ok
    assert cluster.command("set-slo", slo="2s").ok
    solver = psutil.Process(first.pid).children(recursive=True)
    first.kill()
    first.join()
    psutil.wait_procs(solver, timeout=10)
    assert not [process for process in solver if process.is_running()]

    # Written while no app is in charge: the next one executes it, once.
    waiting = Command(id=uuid.uuid4().hex, pipeline=cluster.pipeline.name, action="pause")
    cluster.write(COMMANDS, encode(waiting))
    cluster.start_app()
    assert cluster.answer(waiting.id).ok
    assert [(result.ok, result.epoch) for result in cluster.results] == [
        (True, 2), (True, 3), (True, 4),
    ]  # fmt: skip
    cluster.until(lambda: cluster.plans[-1].epoch == 4, "the plan of the command")
    assert cluster.plans[-1].capacity_qps == 0.0
    assert cluster.plans[-1].settings == structs.replace(
        cluster.plans[0].settings, policy="accurate", slo_s=2.0, paused=True
    )

    assert cluster.command("rollback", epoch="1").ok
    cluster.until(lambda: cluster.plans[-1].epoch == 5, "the plan of the rollback")
    assert cluster.plans[-1].settings == cluster.plans[0].settings
    kept = retained_plans(cluster.kafka, cluster.pipeline.name)
    assert [plan.epoch for plan in kept] == [1, 2, 3, 4, 5]


def test_the_oldest_plans_are_deleted_beyond_the_limit(cluster: Cluster) -> None:
    name, before = cluster.pipeline.name, REMEMBERED_PLANS + 2
    for epoch in range(1, before + 1):
        settings = Settings(policy="accurate", slo_s=1 + epoch / 100)
        old = Plan(pipeline=name, epoch=epoch, issued_s=1.0, reason="old", settings=settings)
        cluster.write(PLANS, encode(old), f"{name}/{epoch:08d}")
    cluster.start_app()
    cluster.until(lambda: cluster.plans and cluster.plans[-1].epoch == before + 1, "its own plan")
    cluster.until(
        lambda: retained_plans(cluster.kafka, name)[0].epoch == 4, "the first three to go"
    )
    assert len(retained_plans(cluster.kafka, name)) == REMEMBERED_PLANS
    assert cluster.command("rollback", epoch="4").ok
    # The rollback's own plan is one more, so plan 4 has been deleted.
    assert "nearest one known is 5" in cluster.command("rollback", epoch="3").message


def test_a_second_app_takes_over_when_the_first_ends(cluster: Cluster) -> None:
    first = cluster.start_app()
    cluster.until(lambda: cluster.plans, "the first plan")
    cluster.start_app()
    cluster.command("replan")
    assert Election(cluster.kafka, cluster.pipeline.name, "another").replaced()
    assert first.pid is not None
    os.kill(first.pid, signal.SIGTERM)
    cluster.until(lambda: not first.is_alive(), "the first app to end")
    assert first.exitcode == 0
    assert cluster.command("set-slo", slo="2s").ok
    cluster.until(lambda: cluster.plans[-1].settings.slo_s == 2.0, "the plan of the command")
    epochs = [plan.epoch for plan in cluster.plans]
    assert epochs == sorted(set(epochs))


def test_demand_is_read_off_the_input_topic_and_planned_for(cluster: Cluster) -> None:
    pipeline = replace(cluster.pipeline, policy="loki")
    cluster.pipeline = pipeline
    cluster.start_app()
    cluster.until(lambda: cluster.plans, "the first plan")
    queries = physical(pipeline.name, QUERIES)

    def plan_for_the_load() -> bool:
        # 100 queries a second that no ingress reads.
        for _ in range(2):
            cluster._producer.produce(queries, b"x")
        cluster._producer.poll(0)
        time.sleep(0.02)
        # Usually the jump triggers the plan; an app that stalled estimates the demand from scratch.
        return any(plan.demand_qps > 20.0 for plan in cluster.plans)

    cluster.until(plan_for_the_load, "a plan for more")


def test_an_app_that_finds_the_broker_gone_while_it_starts_waits_for_it(broker: str) -> None:
    # Use a separate process: Faust leaves the event loop of an app that failed to start open.
    starting = multiprocessing.get_context("spawn").Process(target=start_twice, args=(broker,))
    starting.start()
    starting.join(WAIT_S)
    assert starting.exitcode == 0


def test_an_app_that_its_group_refuses_ends_and_says_why(cluster: Cluster) -> None:
    """It waited for ever in Faust's start, where SIGTERM did not reach it either."""
    refused = multiprocessing.get_context("spawn").Process(
        target=run_refused, args=(cluster.pipeline, cluster.kafka)
    )
    refused.start()
    cluster.apps.append(refused)
    refused.join(WAIT_S)
    assert refused.exitcode == 0


def run_refused(pipeline: Pipeline, kafka: KafkaConfig) -> None:
    """Run an app with a shorter session timeout than the local broker takes."""
    control_app.SESSION_TIMEOUT_S = 0.9
    with pytest.raises(BrokerError, match=r"set group\.min\.session\.timeout\.ms"):
        run_control_app(pipeline, partial(Controller, pipeline, a_profile(), 3), kafka)


async def no_errors(app: faust.App) -> None:
    """Find no error."""
    await asyncio.Event().wait()


def start_twice(broker: str) -> None:
    """Start apps until one runs: the first app's broker is away, and the second look finds it
    back."""
    pipeline, there = a_pipeline(policies=(ACCURATE,)), KafkaConfig(broker)
    ensure_topics(there, topics(pipeline))
    driver = ControlDriver(pipeline, lambda: Controller(pipeline, None, 3), there)
    configs, answers = iter((KafkaConfig("127.0.0.1:1"), there)), iter((False, True))
    made: list[faust.App] = []

    def make() -> faust.App:
        made.append(make_app(Election(next(configs), pipeline.name, "c"), driver))
        return made[-1]

    async def whole() -> None:
        app = await started(make, lambda: next(answers), asyncio.Event(), no_errors)
        assert app is made[1]
        assert next(answers, None) is None
        await app.stop()

    asyncio.run(whole())
    driver.close()
