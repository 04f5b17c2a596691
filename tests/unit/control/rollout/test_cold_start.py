"""control/rollout/cold_start.py: workers that first load a faster-loading variant."""

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from control.problem.problem import Replicas
from control.rollout.cold_start import PART, SOONER_S, InterimVariants, with_interims
from control.rollout.placement import Member
from profiles.profile_table import ProfileTable
from schemas.pipeline import Pipeline, Policy
from schemas.records import Lease
from schemas.variant_id import variant_id
from tests.control_world import a_pipeline, an_entry

POLICY = Policy(name="loki", kind="loki")
LOADS_S = {"forest": 0.5, "vit": 10.0}


def the_interims(
    loads_s: Mapping[str, float] = LOADS_S,
    rates: Mapping[str, float] = {"forest": 1000.0, "vit": 200.0},
    memory: Mapping[str, int] = {},
    pipeline: Pipeline | None = None,
) -> InterimVariants:
    """Return the interim variants of "read", with each variant's load time and items/s."""
    entries = [
        an_entry("locate", "net", 100.0, 0.9, fan_out=5.0),
        *(
            replace(
                an_entry("read", name, rates[name], 0.9), load_s=loads_s[name], memory_bytes=100
            )
            for name in ("forest", "vit")
        ),
    ]
    return InterimVariants(
        pipeline=pipeline or a_pipeline(), policy=POLICY, memory=memory,
        profile=ProfileTable("postcode", tuple(entries)),
    )  # fmt: skip


def a_post(key: str, batch: int = 4) -> Replicas:
    task, variant = variant_id(key)
    return Replicas(task=task, variant=variant, batch=batch, count=1)


def begun(
    wanted: Mapping[str, str],
    interims: InterimVariants,
    loaded: Mapping[str, str] = {},
    held: Mapping[str, str] = {},
) -> dict[str, str]:
    """Return the assignment of each worker as "task/variant" in the next plan."""
    members = [Member(name=name, device="cpu", loaded=loaded.get(name, "")) for name in wanted]
    leases = {}
    for slot, (name, key) in enumerate(held.items()):
        task, variant = variant_id(key)
        leases[name] = Lease(
            worker=name, task=task, variant=variant, batch=4, slots=(slot,), open_slot=slot
        )
    posts = {name: a_post(key) for name, key in wanted.items()}
    return {
        name: post.key for name, post in with_interims(members, leases, posts, interims).items()
    }


THREE = dict.fromkeys(("a", "b", "c"), "read/vit")
HALF = {"a": "read/forest", "b": "read/forest", "c": "read/vit"}


def test_half_of_the_workers_of_a_cold_task_first_load_the_fastest_loading_variant() -> None:
    assert begun(THREE, the_interims()) == HALF
    assert begun({"a": "read/vit"}, the_interims()) == {"a": "read/forest"}
    two = {"a": "read/vit", "b": "read/vit"}
    assert begun(two, the_interims()) == {**two, "a": "read/forest"}


def test_an_interim_variant_is_kept_until_it_is_loaded() -> None:
    assert begun(THREE, the_interims(), held=HALF) == HALF
    moved = {"a": "read/vit", "b": "read/forest", "c": "read/vit"}
    assert begun(THREE, the_interims(), held=moved) == moved
    last = {"a": "read/forest", "b": "read/vit", "c": "read/forest"}
    assert begun(THREE, the_interims(), held={"c": "read/forest"}) == last


def test_all_workers_switch_to_the_wanted_variant_once_one_has_loaded() -> None:
    assert begun(THREE, the_interims(), loaded={"a": "read/forest"}, held=HALF) == THREE


def test_worker_already_loading_the_wanted_variant_continues() -> None:
    assert begun(THREE, the_interims(), held=THREE) == THREE
    assert begun(THREE, the_interims(), held={"a": "read/vit"}) == {
        "a": "read/vit", "b": "read/forest", "c": "read/forest",
    }  # fmt: skip


def test_workers_from_another_task_may_load_an_interim_variant() -> None:
    from_other = {"a": "locate/net"}
    assert begun(THREE, the_interims(), loaded=from_other, held=from_other) == HALF


def test_interim_variant_must_save_enough_load_time() -> None:
    at_the_limit = {"vit": 2 * SOONER_S, "forest": SOONER_S}
    assert begun(THREE, the_interims(at_the_limit)) == HALF
    assert begun(THREE, the_interims({**at_the_limit, "forest": SOONER_S + 0.01})) == THREE
    assert begun(THREE, the_interims({"vit": SOONER_S - 0.01, "forest": 0.0})) == THREE
    assert begun(THREE, the_interims({"vit": 60.0, "forest": 60.0 * PART + 0.1})) == THREE


def test_an_interim_variant_fits_beside_the_wanted_variant() -> None:
    assert begun(THREE, the_interims(memory={"cpu": 200})) == HALF
    assert begun(THREE, the_interims(memory={"cpu": 199})) == THREE


def test_a_slower_interim_variant_runs_smaller_batches_or_none() -> None:
    # A batch of the wanted variant takes 4 / 200 s, and one item of a variant at 50/s as long.
    def batch(rate: float) -> int:
        found = the_interims(rates={"forest": rate, "vit": 200.0}).of(a_post("read/vit"), "cpu")
        return found.batch if found else 0

    assert [batch(rate) for rate in (1000.0, 199.0, 50.0, 49.0)] == [4, 1, 1, 0]


def test_workers_that_choose_for_themselves_have_no_interim_variants() -> None:
    pipeline = a_pipeline()
    tasks = tuple(replace(task, dispatch="fcfs") for task in pipeline.tasks)
    assert begun(THREE, the_interims(pipeline=replace(pipeline, tasks=tasks))) == THREE
    tasks = tuple(replace(task, selection="ramsis") for task in pipeline.tasks)
    assert begun(THREE, the_interims(pipeline=replace(pipeline, tasks=tasks))) == THREE


def test_devices_that_were_not_measured_have_no_interim_variants() -> None:
    assert the_interims().of(a_post("read/vit"), "cuda:0") is None


KEYS = ("locate/net", "read/forest", "read/vit")
NAMES = ("a", "b", "c", "d", "e")


@given(
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(KEYS)),
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(("", *KEYS))),
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(KEYS)),
)
def test_only_variants_change_at_cold_tasks_and_of_half_at_most(
    wanted: dict[str, str], loaded: dict[str, str], held: dict[str, str]
) -> None:
    posts = begun(wanted, the_interims(), loaded, held)
    assert posts.keys() == wanted.keys()
    for task in ("locate", "read"):
        own = [name for name, key in wanted.items() if variant_id(key).task == task]
        changed = [name for name in own if posts[name] != wanted[name]]
        assert len(changed) <= (len(own) + 1) // 2
        assert all(posts[name] == "read/forest" for name in changed)
        if any(variant_id(loaded.get(name, "")).task == task for name in own):
            assert not changed
