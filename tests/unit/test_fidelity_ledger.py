"""What answers tell of hops and batches, and machines that are slower than a profile."""

from headrace.fidelity_ledger import Batch, batches, hops_s
from operators.models.emulated import Emulated, Stretched
from schemas.pipeline import Variant
from schemas.records import ANSWERED, Answer, Hop, Origin
from tests.unit.test_emulated import NET, TABLE


def a_hop(task: str, worker: str, received_s: float, started_s: float, finished_s: float) -> Hop:
    return Hop(
        task=task, variant="v", worker=worker, epoch=1, received_s=received_s,
        started_s=started_s, finished_s=finished_s, batch=2,
    )  # fmt: skip


def an_answer(*paths: tuple[Hop, ...]) -> Answer:
    return Answer(
        id="q-0", origin=Origin(0, 0), outcome=ANSWERED, created_s=0.0, deadline_s=9.0,
        answered_s=8.0, paths=paths,
    )  # fmt: skip


DETECT = a_hop("detect", "w0", 1.0, 1.5, 2.0)
READ, OTHER = a_hop("read", "w1", 2.25, 3.0, 4.0), a_hop("read", "w2", 2.5, 3.0, 5.0)


def test_a_record_with_several_items_is_one_hop() -> None:
    answer = an_answer((DETECT, READ), (DETECT, READ), (DETECT, OTHER))
    assert list(hops_s(answer)) == [0.25, 0.5]


def test_with_one_task_the_hop_is_the_one_to_the_answer() -> None:
    assert list(hops_s(an_answer((DETECT,), (OTHER,)))) == [3.0]


def test_a_batch_counts_once() -> None:
    assert batches([an_answer((DETECT, READ), (DETECT, READ))]) == {
        Batch("w0", "detect/v", 2, 1.5, 0.5),
        Batch("w1", "read/v", 2, 3.0, 1.0),
    }


def test_on_a_slower_machine_a_batch_takes_its_median_times_the_stretch() -> None:
    variant: Variant = NET
    median = Emulated(TABLE, variant, ("read", "sort"), None)
    slower = Stretched(median, iter([1.0, 2.5]).__next__)
    assert slower.latency_s(1) == median.latency_s(1)
    assert slower.latency_s(2) == 2.5 * median.latency_s(2)
    assert slower.load_s == median.load_s
