"""control/rollout/staging.py: the order in which workers change."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from control.problem.problem import Replicas
from control.rollout.placement import Member
from control.rollout.staging import staged, within_slots
from schemas.records import Lease

RATES = {"net": 100.0, "fast": 100.0, "good": 40.0}


def rate(worker: str, task: str, variant: str, batch: int) -> float:
    return RATES[variant]


def a_member(name: str, loaded: str, usable: bool = True) -> Member:
    return Member(name=name, loaded=loaded, serves=loaded.partition("/")[0], usable=usable)


def a_lease(worker: str, key: str, slot: int = 0) -> Lease:
    task, _, variant = key.partition("/")
    return Lease(worker=worker, task=task, variant=variant, batch=4, slots=(slot,), open_slot=slot)


def a_post(key: str) -> Replicas:
    task, _, variant = key.partition("/")
    return Replicas(task=task, variant=variant, batch=4, count=1)


def next_posts(
    now: Mapping[str, str], wanted: Mapping[str, str], needed: Mapping[str, float],
    loaded: Mapping[str, str] = {}, unusable: str = "",
) -> dict[str, str]:  # fmt: skip
    """Return the assignment of each worker as "task/variant" in the next plan if all serve."""
    members = [
        a_member(name, loaded.get(name, now.get(name, "")), name != unusable)
        for name in sorted({*now, *wanted})
    ]
    held = {name: a_lease(name, key, slot) for slot, (name, key) in enumerate(now.items())}
    posts = {name: a_post(key) for name, key in wanted.items()}
    return {n: post.key for n, post in staged(members, held, posts, needed, rate).items()}


FOUR_FAST = dict.fromkeys(("a", "b", "c", "d"), "read/fast")
FOUR_GOOD = dict.fromkeys(("a", "b", "c", "d"), "read/good")


def test_without_demand_half_of_a_tasks_workers_change_at_a_time() -> None:
    assert next_posts(FOUR_FAST, FOUR_GOOD, {}) == {
        "a": "read/good", "b": "read/good", "c": "read/fast", "d": "read/fast",
    }  # fmt: skip


def test_workers_already_loading_count_towards_the_half_that_may_change() -> None:
    now = {**FOUR_FAST, "a": "read/good", "b": "read/good"}
    loading = {"a": "read/fast", "b": "read/fast"}
    assert next_posts(now, FOUR_GOOD, {}, loading) == now
    assert next_posts(now, FOUR_GOOD, {}, {"a": "read/fast"}) == {**FOUR_GOOD, "d": "read/fast"}


def test_loading_worker_counts_with_the_slower_of_its_variants() -> None:
    now, loading = {**FOUR_FAST, "a": "read/good"}, {"a": "read/fast"}
    # 40 + 100 + 100 + 100; without b 280 are left.
    assert next_posts(now, FOUR_GOOD, {"read": 280.0}, loading)["b"] == "read/good"
    assert next_posts(now, FOUR_GOOD, {"read": 281.0}, loading)["b"] == "read/fast"


def test_loading_worker_serves_with_the_slower_variant_until_the_faster_is_loaded() -> None:
    wanted, loading = {**FOUR_GOOD, "a": "read/fast"}, {"a": "read/good"}
    assert next_posts(FOUR_FAST, wanted, {"read": 280.0}, loading)["b"] == "read/good"
    assert next_posts(FOUR_FAST, wanted, {"read": 281.0}, loading)["b"] == "read/fast"


def test_a_draining_worker_serves_nothing_and_is_waited_for() -> None:
    members = [a_member(name, "read/fast") for name in "abc"]
    held = {name: a_lease(name, "read/fast", slot) for slot, name in enumerate("abc")}
    held["c"] = structs.replace(held["c"], open_slot=-1)
    posts = {"a": a_post("locate/net"), "b": a_post("read/fast")}
    found = staged(members, held, posts, {"read": 150.0}, rate)
    assert {name: post.key for name, post in found.items()} == {"a": "read/fast", "b": "read/fast"}


def test_a_task_keeps_what_it_needs() -> None:
    assert next_posts(FOUR_FAST, FOUR_GOOD, {"read": 330.0})["b"] == "read/fast"
    assert next_posts(FOUR_FAST, FOUR_GOOD, {"read": 330.0})["a"] == "read/good"


def test_faster_variants_and_idle_workers_do_not_wait() -> None:
    assert next_posts(FOUR_GOOD, FOUR_FAST, {"read": 500.0}) == FOUR_FAST
    assert next_posts({}, FOUR_FAST, {"read": 500.0}) == FOUR_FAST


def test_a_worker_leaves_its_task_when_a_successor_has_loaded() -> None:
    now = {"a": "read/fast", "b": "read/fast"}
    wanted = {"a": "locate/net", "b": "read/fast", "c": "read/fast"}
    assert next_posts(now, wanted, {"read": 150.0}) == {**now, "c": "read/fast"}
    assert next_posts({**now, "c": "read/fast"}, wanted, {"read": 150.0}) == wanted


def test_one_worker_changes_if_the_rollout_is_otherwise_deadlocked() -> None:
    wanted = {**FOUR_FAST, "a": "locate/net", "b": "locate/net"}
    assert next_posts(FOUR_FAST, wanted, {"read": 1000.0}) == {**FOUR_FAST, "b": "locate/net"}
    # c is still loading: wait.
    assert next_posts(FOUR_FAST, wanted, {"read": 1000.0}, {"c": "read/good"}) == FOUR_FAST


def test_the_change_that_leaves_its_task_the_largest_part_of_its_need_is_the_first() -> None:
    """Of three readers for 290/s one less leaves 240; of two locators for 190/s, 140."""
    now = {**dict.fromkeys(("c", "d"), "locate/fast"), **dict.fromkeys("efg", "read/fast")}
    wanted = {name: key.replace("fast", "good") for name, key in now.items()}
    needed = {"locate": 190.0, "read": 290.0}
    assert next_posts(now, wanted, needed) == {**now, "g": "read/good"}
    swapped = {"c": "read/fast", "d": "read/fast", **dict.fromkeys("efg", "locate/fast")}
    good = {name: key.replace("fast", "good") for name, key in swapped.items()}
    needed = {"locate": 299.0, "read": 150.0}  # 80 % of 299, 93 % of 150
    assert next_posts(swapped, good, needed) == {**swapped, "d": "read/good"}


def test_worker_drained_by_command_leaves_at_once() -> None:
    wanted = {name: key for name, key in FOUR_FAST.items() if name != "a"}
    assert next_posts(FOUR_FAST, wanted, {"read": 400.0}, unusable="a") == wanted


KEYS = st.sampled_from(["locate/net", "read/fast", "read/good"])


@given(
    now=st.dictionaries(st.sampled_from("abcdef"), KEYS, min_size=1),
    wanted=st.dictionaries(st.sampled_from("abcdef"), KEYS),
    needed=st.fixed_dictionaries({"locate": st.floats(0.0, 400.0), "read": st.floats(0.0, 400.0)}),
)
def test_no_task_falls_below_its_need_unless_it_already_was(
    now: dict[str, str], wanted: dict[str, str], needed: dict[str, float]
) -> None:
    posts = next_posts(now, wanted, needed)
    for task, need in needed.items():
        before = sum(RATES[key.partition("/")[2]] for key in now.values() if key.startswith(task))
        after = sum(
            min(RATES[key.partition("/")[2]], RATES[posts[name].partition("/")[2]])
            for name, key in now.items()
            if key.startswith(task) and posts.get(name, "").startswith(task)
        )
        forced = [name for name, key in now.items() if posts.get(name) != key]
        if before >= need and len(forced) > 1:
            assert after >= need - 1e-9 or _lone(now, posts, task)
    # A worker that does not wait has its final assignment.
    assert all(posts[name] in (wanted.get(name), now.get(name)) for name in posts)


@given(
    now=st.dictionaries(st.sampled_from("abcdef"), KEYS, min_size=1),
    wanted=st.dictionaries(st.sampled_from("abcdefgh"), KEYS),
    spare=st.integers(0, 2),
)
def test_posts_within_the_slots_of_a_task_lead_to_the_allocation(
    now: dict[str, str], wanted: dict[str, str], spare: int
) -> None:
    """Old workers that waited and their successors were given more slots than there are."""
    held = {name: a_lease(name, key) for name, key in now.items()}
    asked = {name: a_post(key) for name, key in wanted.items()}
    posts = {**asked, **{name: a_post(key) for name, key in now.items() if name < "e"}}
    most = max(sum(post.task == task for post in asked.values()) for task in ("locate", "read"))
    slots = dict.fromkeys(("locate", "read"), max(1, most + spare))
    found = within_slots(posts, asked, held, slots)
    for task, count in slots.items():
        here = [name for name, post in found.items() if post.task == task]
        started = [name for name in here if name not in held or held[name].task == task]
        assert len(started) <= count
        new = [name for name in posts if posts[name].task == task and name not in held]
        assert not new or any(name in asked for name in here)


def _lone(now: dict[str, str], posts: dict[str, str], task: str) -> bool:
    """Only the worker that breaks a deadlock has changed at the task's expense."""
    lost = [
        name
        for name, key in now.items()
        if key.startswith(task)
        and (
            not posts.get(name, "").startswith(task)
            or RATES[posts[name].partition("/")[2]] < RATES[key.partition("/")[2]]
        )
    ]
    return len(lost) == 1
