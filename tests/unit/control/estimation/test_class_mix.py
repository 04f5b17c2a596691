"""control/estimation/class_mix.py: the SLO classes that plans consider."""

from collections.abc import Mapping
from dataclasses import replace

from msgspec.structs import replace as with_fields

from control.estimation.class_mix import MEMORY_S, ClassMix
from control.estimation.report_deltas import ReportDeltas
from schemas.enumerations import NodeState
from schemas.pipeline import ClassShare, Pipeline
from schemas.records import Report
from tests.builders import a_pipeline

CLASSES = {"gold": 0.1, "bulk": 2.0}


def a_mix(**floors: float) -> ClassMix:
    pipeline: Pipeline = replace(
        a_pipeline(), slo_classes=CLASSES,
        class_shares={name: ClassShare(floor=floor) for name, floor in floors.items()},
    )  # fmt: skip
    return ClassMix(pipeline)


def a_report(at_s: float, counts: Mapping[str, float], node: str = "egress-0") -> Report:
    return Report(
        node=node, role="egress", pipeline="p", incarnation=1.0, sent_s=at_s, epoch=0,
        state=NodeState.READY,
        counts={f"class/{name}/answered": count for name, count in counts.items()},
    )  # fmt: skip


def after(mix: ClassMix, *ended: Mapping[str, float]) -> list[str]:
    """Return the classes that count after one report a second; counts are per second."""
    total: dict[str, float] = {}
    reports = [a_report(0.0, total)]
    for at, new in enumerate(ended, 1):
        total = {name: total.get(name, 0.0) + new.get(name, 0.0) for name in {**total, **new}}
        reports.append(a_report(float(at), total))
    tell(mix, *reports)
    return list(mix.counting())


def tell(mix: ClassMix, *reports: Report) -> None:
    deltas = ReportDeltas("egress")
    for news in map(deltas.take, reports):
        if news is not None:
            mix.observe(news)


def test_every_class_counts_before_much_is_known() -> None:
    assert after(a_mix()) == ["gold", "bulk"]
    assert after(a_mix(), {"": 99}) == ["gold", "bulk"]


def test_a_class_counts_by_its_share_of_the_queries() -> None:
    assert after(a_mix(), {"": 900, "gold": 100}) == ["gold"]
    assert after(a_mix(), {"": 990, "gold": 10}) == []


def test_a_class_with_a_floor_always_counts() -> None:
    assert after(a_mix(gold=0.5), {"": 1000}) == ["gold"]


def test_a_class_near_the_limit_neither_enters_nor_leaves() -> None:
    near = {"": 96, "gold": 4}
    mix = a_mix()
    assert after(mix, {"": 900, "gold": 100}, *[near] * 300) == ["gold"]
    late = a_mix()
    assert after(late, {"": 1000}, *[near] * 300) == []


def test_a_class_that_has_gone_is_forgotten() -> None:
    assert after(a_mix(), {"": 50, "gold": 50}, *[{"": 100}] * 240) == []


def test_a_class_that_returns_after_long_counts_within_the_memory() -> None:
    long, memory = [{"": 100}] * int(10 * MEMORY_S), [{"": 80, "gold": 20}] * int(MEMORY_S)
    assert after(a_mix(), *long) == []
    assert after(a_mix(), *long, *memory) == ["gold"]


def test_a_class_that_sends_alone_counts_however_rarely_it_sends() -> None:
    """One query a second never reaches a hundred of the last minute: the class stayed left out."""
    mix = a_mix()
    assert after(mix, {"": 1000}) == []
    assert after(mix, *[{}] * 600, *[{"gold": 1}] * 60) == ["gold"]


def test_few_queries_of_others_do_not_end_a_class() -> None:
    assert after(a_mix(), {"": 50, "gold": 50}, *[{"": 1}] * 600) == ["gold"]


def test_counts_of_an_egress_before_its_first_report_are_ignored() -> None:
    mix = a_mix()
    tell(mix, a_report(1.0, {"": 1000}))
    assert list(mix.counting()) == ["gold", "bulk"]
    tell(mix, a_report(1.0, {"": 0}), a_report(2.0, {"": 1000}))
    assert mix.counting() == {}


def test_restarted_egress_counts_from_zero() -> None:
    mix, counts = a_mix(), {"": 1000.0}
    tell(mix, a_report(1.0, counts), with_fields(a_report(2.0, counts), incarnation=2.0))
    assert mix.counting() == {}
