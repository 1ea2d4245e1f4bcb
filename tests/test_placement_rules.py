"""Each rule of `Placement` that moves blocks, by hand. A request is served alone; blocks are numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from placement_stacks import moved, new_shared, new_stack, residents
from pydantic import ValidationError

from pipeline.placement.base import CAUSES, ONBOARD, Placement
from pipeline.placement.checks import check_invariants
from pipeline.placement.lower import tier_with, write_listed
from pipeline.placement.stack import acquire, commit, free_private, match, record_misses, release, reserve, take_pending
from pipeline.placement.state import DRAM, HBM, NONE, REMOTE, SSD

INCLUSIVE: dict[str, Any] = {"inclusion": "inclusive"}
THROUGH: dict[str, Any] = {"inclusion": "inclusive", "write_policy": "write_through"}
SELECTIVE: dict[str, Any] = {"inclusion": "inclusive", "write_policy": "write_through_selective", "write_threshold": 2}


class Served:
    """A stack that serves one request after the other, a second apart."""

    def __init__(self, capacity: list[int], shared: Any = None, **rules: Any) -> None:
        self.stack, self.tiers = new_stack(capacity, shared=shared, **rules)
        self.time_s = 0.0

    def serve(self, chain: list[int], outputs: int = 0) -> tuple[int, ...]:
        """Look up, bring up, compute the rest, end the step, let go; return the hits by tier."""
        self.time_s += 1.0
        ids = np.array(chain, np.int64)
        run = match(self.stack, self.tiers, ids, 0, ids.size, self.time_s)
        ok, *hits = acquire(self.stack, self.tiers, ids, 0, run, ONBOARD, self.time_s)
        assert ok
        record_misses(self.stack, ids.size - run)
        assert reserve(self.stack, self.tiers, ids.size - run, self.time_s)
        for k in range(run, ids.size):
            commit(self.stack, self.tiers, chain[k], k >= ids.size - outputs, self.time_s)
        write_listed(self.stack, self.tiers, self.time_s)
        release(self.stack, self.tiers, ids, 0, ids.size, self.time_s)
        assert check_invariants(self.stack, self.tiers) == []
        return tuple(hits)

    @property
    def where(self) -> list[set[int]]:
        return residents(self.tiers)


def test_exclusive_moves_a_hit_up_and_inclusive_leaves_a_copy() -> None:
    for inclusion, below in (("exclusive", {1}), ("inclusive", {0, 1})):
        served = Served([1, 4, 0, 0], inclusion=inclusion)
        for block in (0, 1, 0):
            served.serve([block])
        assert served.where[:2] == [{0}, below]


def test_inclusive_writes_back_once() -> None:
    served = Served([1, 4, 0, 0], **INCLUSIVE)
    for block in (0, 1, 0, 1, 0):
        served.serve([block])
    assert moved(served.stack) == {(HBM, DRAM, "demote"): 2, (DRAM, HBM, "onboard"): 3}


def test_write_through_writes_at_the_end_of_the_step() -> None:
    served = Served([4, 4, 0, 0], **THROUGH)
    stack, tiers = served.stack, served.tiers
    assert reserve(stack, tiers, 2, 0.0)
    for block in (0, 1):
        commit(stack, tiers, block, False, 0.0)
    assert served.where[DRAM] == set()
    write_listed(stack, tiers, 1.0)
    assert served.where[DRAM] == {0, 1}
    write_listed(stack, tiers, 2.0)
    assert moved(stack) == {(HBM, DRAM, "offload"): 2}


def test_write_through_does_not_write_what_left_hbm_within_the_step() -> None:
    served = Served([2, 4, 0, 0], **THROUGH)
    stack, tiers = served.stack, served.tiers
    ids = np.array([0], np.int64)
    assert reserve(stack, tiers, 1, 0.0)
    commit(stack, tiers, 0, False, 0.0)
    release(stack, tiers, ids, 0, 1, 0.0)
    assert reserve(stack, tiers, 2, 0.0)
    write_listed(stack, tiers, 1.0)
    assert served.where == [set(), set(), set(), set()]
    free_private(stack, tiers, 2)


@pytest.mark.parametrize(("writes_output", "written"), [(True, {0, 1, 2}), (False, {0, 1})])
def test_blocks_of_output_are_written_where_that_is_the_rule(writes_output: bool, written: set[int]) -> None:
    served = Served([4, 4, 0, 0], **THROUGH, writes_output=writes_output)
    served.serve([0, 1, 2], outputs=1)
    assert served.where[DRAM] == written


def test_selective_writes_from_the_second_use_on() -> None:
    served = Served([4, 4, 0, 0], **SELECTIVE)
    served.serve([0, 1])
    assert served.where[DRAM] == set()
    assert served.serve([0, 2]) == (1, 0, 0, 0)
    assert served.where[DRAM] == {0}, "computed once, hit once"
    served.serve([0, 2])
    assert served.where[DRAM] == {0, 2}
    assert moved(served.stack) == {(HBM, DRAM, "offload"): 2}


def test_computing_again_is_a_use_too() -> None:
    served = Served([1, 4, 0, 0], **SELECTIVE)
    for block in (0, 1, 0):
        served.serve([block])
    assert served.where == [{0}, {0}, set(), set()]


@pytest.mark.parametrize(("counts", "in_dram"), [(False, {1, 2}), (True, {0, 2})])
def test_a_hit_in_hbm_may_be_a_use_of_the_copy_below(counts: bool, in_dram: set[int]) -> None:
    served = Served([3, 2, 0, 0], **THROUGH, hits_count_below=counts)
    for block in (0, 1, 0, 2):
        served.serve([block])
    assert served.where[DRAM] == in_dram


@pytest.mark.parametrize(("counts", "in_dram"), [(False, {2}), (True, {0})])
def test_a_hit_in_hbm_may_write_again_what_left_the_tier_below(counts: bool, in_dram: set[int]) -> None:
    served = Served([3, 1, 0, 0], **THROUGH, hits_count_below=counts)
    for block in (0, 2, 0):
        served.serve([block])
    assert served.where[DRAM] == in_dram


@pytest.mark.parametrize(
    ("lower", "expected"),
    [("none", [{2}, {1}, set(), set()]), ("write_back", [{2}, {1}, {0}, set()])],
)
def test_what_dram_evicts_is_dropped_or_passed_on(lower: str, expected: list[set[int]]) -> None:
    served = Served([1, 1, 4, 0], lower_write_policy=lower)
    for block in (0, 1, 2):
        served.serve([block])
    assert served.where == expected


def test_lower_write_through_copies_on_what_comes_in() -> None:
    served = Served([4, 2, 4, 8], **THROUGH, lower_write_policy="write_through")
    served.serve([0, 1, 2])
    assert served.where == [{0, 1, 2}, {1, 2}, {0, 1, 2}, {0, 1, 2}]
    down = ((HBM, DRAM), (DRAM, SSD), (SSD, REMOTE))
    assert moved(served.stack) == {(source, target, "offload"): 3 for source, target in down}


def test_lower_selective_copies_on_from_the_second_time() -> None:
    rules = {"lower_write_policy": "write_through_selective", "lower_write_threshold": 2}
    served = Served([1, 1, 4, 0], **THROUGH, **rules)
    for block in (0, 1):
        served.serve([block])
    assert served.where == [{1}, {1}, set(), set()]
    served.serve([0])  # in no tier any more: computed, and written a second time
    assert served.where == [{0}, {0}, {0}, set()]


@pytest.mark.parametrize(("keeps", "dram"), [(False, {2}), (True, {0})])
def test_what_comes_up_from_ssd_may_stay_in_dram(keeps: bool, dram: set[int]) -> None:
    served = Served([2, 1, 4, 0], **THROUGH, lower_write_policy="write_through", keeps_on_the_way=keeps)
    for block in (0, 1, 2):
        served.serve([block])
    before = moved(served.stack)
    assert served.serve([0]) == (0, 0, 1, 0)
    assert served.where == [{0, 2}, dram, {0, 1, 2}, set()]
    assert moved(served.stack) == before | {(SSD, HBM, "onboard"): 1}, "the copy costs no transfer"


def test_what_comes_up_from_a_remote_pool_stays_in_all_tiers_that_it_passes() -> None:
    served = Served([1, 1, 1, 4], **INCLUSIVE, keeps_on_the_way=True)
    for block in (0, 1, 2, 3):
        served.serve([block])
    assert served.where == [{3}, {2}, {1}, {0}]
    # 2 makes room in DRAM and goes to SSD, where 1 makes room for it and goes on; then SSD makes room for 0, and 2 is
    # passed on; last, 3 is evicted from HBM, and 0 from DRAM: it lies in SSD too.
    assert served.serve([0]) == (0, 0, 0, 1)
    assert served.where == [{0}, {3}, {0}, {0, 1, 2}]


def test_a_copy_kept_on_the_way_does_not_push_out_what_the_same_request_loads() -> None:
    served = Served([2, 1, 4, 0], **INCLUSIVE, keeps_on_the_way=True)
    for block in range(4):
        served.serve([block])
    assert served.where == [{2, 3}, {1}, {0}, set()]
    # 0 stays in DRAM, from where 1 goes on to SSD; but 1 is loaded from DRAM. Then 2 and 3 come down.
    assert served.serve([0, 1]) == (0, 1, 1, 0)
    assert served.where == [{0, 1}, {3}, {0, 1, 2}, set()]


@pytest.mark.parametrize(("order", "dram"), [("root_first", {1, 2}), ("leaf_first", {0, 1})])
def test_the_oldest_of_a_request_below_is_its_first_or_its_last(order: str, dram: set[int]) -> None:
    served = Served([4, 2, 0, 0], **THROUGH, lower_order=order)
    served.serve([0, 1, 2])
    assert served.where[DRAM] == dram, "as they are written"
    served = Served([4, 3, 0, 0], **THROUGH, lower_order=order)
    served.serve([0, 1, 2])
    served.serve([3, 4, 5])
    served.serve([0, 1])
    served = Served([3, 3, 0, 0], **THROUGH, lower_order=order)
    served.serve([0, 1, 2])
    served.serve([0, 1, 2])
    served.serve([9])
    assert served.where[DRAM] == dram | {9}, "and after use"


def test_a_tier_below_may_keep_what_hbm_holds() -> None:
    for spares, dram in ((False, {2, 3}), (True, {0, 1})):
        served = Served([4, 2, 0, 0], **THROUGH, spares_hbm=spares)
        for block in (0, 1, 2, 3):
            served.serve([block])
        assert served.where[DRAM] == dram
    # 2 and 3 found no room. Then 4 pushes 0 out of HBM, which is the newest that DRAM may evict, and the only one.
    assert served.stack.dropped_blocks.tolist() == [0, 2, 0, 0]
    served.serve([4])
    assert served.where[:2] == [{1, 2, 3, 4}, {1, 4}]


def test_a_tier_below_evicts_a_share_at_a_watermark() -> None:
    served = Served([1, 10, 0, 0], evict_at_ratio=0.9, evict_ratio=0.3)
    for block in range(10):
        served.serve([block])
    assert served.where[DRAM] == set(range(9)), "nine of ten"
    served.serve([10])  # 9 comes down, three go
    assert served.where[DRAM] == {3, 4, 5, 6, 7, 8, 9}
    assert served.stack.evicted_blocks.tolist() == [10, 3, 0, 0]


def test_a_share_of_less_than_a_block_is_a_block() -> None:
    served = Served([1, 2, 0, 0], evict_at_ratio=0.1, evict_ratio=0.1)
    for block in range(3):
        served.serve([block])
    assert served.where[DRAM] == {1}, "a block is a tenth of two, and full"


def test_what_a_share_evicts_is_passed_on() -> None:
    served = Served([1, 4, 8, 0], evict_ratio=0.5)
    for block in range(6):
        served.serve([block])
    assert served.where == [{5}, {2, 3, 4}, {0, 1}, set()]


def test_four_tiers_pass_on_one_by_one() -> None:
    served = Served([1, 1, 1, 2])
    for block in range(6):
        served.serve([block])
    assert served.where == [{5}, {4}, {3}, {1, 2}]
    assert served.serve([1]) == (0, 0, 0, 1)
    assert served.where == [{1}, {5}, {4}, {2, 3}]
    assert moved(served.stack)[REMOTE, HBM, "onboard"] == 1


def test_two_stacks_share_a_tier() -> None:
    shared = new_shared({DRAM: 2}, **INCLUSIVE)
    one, other = (Served([1, 7, 0, 0], shared, **INCLUSIVE) for _ in range(2))
    for block in (0, 1):
        one.serve([block])
    assert other.serve([0]) == (0, 1, 0, 0), "what one wrote the other hits"
    other.serve([2])
    assert moved(other.stack) == {(DRAM, HBM, "onboard"): 1}, "0 is there already"
    other.serve([3])
    one.serve([4])  # 1 comes down, and the oldest, 0, goes
    assert one.where == [{4}, {1, 2}, set(), set()]
    assert other.where == [{3}, {1, 2}, set(), set()]
    assert (one.stack.evicted_blocks.tolist(), other.stack.evicted_blocks.tolist()) == ([2, 1, 0, 0], [2, 0, 0, 0])
    assert shared[DRAM].tier.stack_count == 2


def test_what_one_stack_takes_out_of_an_exclusive_tier_another_does_not_find() -> None:
    shared = new_shared({SSD: 4, REMOTE: 4})
    one, other = (Served([1, 0, 9, 9], shared) for _ in range(2))
    for block in (0, 1):
        one.serve([block])
    assert other.serve([0]) == (0, 0, 1, 0)
    assert one.serve([0]) == (0, 0, 0, 0)
    assert one.where[HBM] == other.where[HBM] == {0}
    other.serve([2])
    one.serve([3])
    assert one.where == [{3}, set(), {0, 1}, set()], "written once"


# Time. As if a block took a second from HBM to DRAM, and two from DRAM to SSD.


def timed(capacity: list[int], **rules: Any) -> Served:
    served = Served(capacity, **rules)
    served.stack.times_writes = True
    served.stack.block_s[HBM, DRAM], served.stack.block_s[DRAM, SSD] = 1.0, 2.0
    served.stack.latency_s[HBM, DRAM] = 0.5
    return served


def test_a_block_on_its_way_is_no_hit_and_not_written_again() -> None:
    served = timed([2, 4, 4, 0], **THROUGH, lower_write_policy="write_through", write_buffer_s=9.0)
    served.serve([0, 1])  # at 1 s: to DRAM till 2.5 and 3.5, and on to SSD till 4.5 and 6.5
    tiers = [tier_with(served.stack, served.tiers, 1, now_s) for now_s in (1.0,)]
    assert tiers == [HBM]
    served.time_s = 1.0
    served.serve([2, 3])  # 0 and 1 leave HBM
    for block, in_dram_s in ((0, 2.5), (1, 3.5)):
        assert tier_with(served.stack, served.tiers, block, in_dram_s - 0.01) == NONE
        assert tier_with(served.stack, served.tiers, block, in_dram_s) == DRAM
    assert match(served.stack, served.tiers, np.array([0, 1], np.int64), 0, 2, 3.0) == 1


@pytest.mark.parametrize(("buffer_s", "dropped"), [(0.5, 2), (1.0, 1), (2.0, 0)])
def test_beyond_the_buffer_a_block_is_not_written(buffer_s: float, dropped: int) -> None:
    # The first is written whatever the buffer; the second is one second behind, the third two.
    served = timed([4, 4, 0, 0], **THROUGH, when_writes_lag="drop", write_buffer_s=buffer_s)
    served.serve([0, 1, 2])
    assert served.stack.dropped_blocks.tolist() == [0, dropped, 0, 0]
    assert served.where[DRAM] == set(range(3 - dropped))


def test_who_waits_drops_nothing() -> None:
    served = timed([4, 4, 0, 0], **THROUGH, when_writes_lag="wait", write_buffer_s=0.0)
    served.serve([0, 1, 2])
    assert served.stack.dropped_blocks.sum() == 0


def test_pending_moves_are_taken_off_what_is_behind() -> None:
    served = timed([4, 4, 0, 0], **THROUGH, when_writes_lag="drop", write_buffer_s=1.0)
    served.serve([0, 1])
    take_pending(served.stack, np.zeros((4, 4, len(CAUSES)), np.int64))
    served.stack.free_s[HBM, DRAM] = 3.5
    served.time_s = 2.0
    served.serve([2, 3])  # at 3: half a second behind, and one and a half
    assert served.where[DRAM] == {0, 1, 2}
    assert served.stack.dropped_blocks.tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ({"write_policy": "write_through"}, "write_policy: given write_through with inclusion=exclusive"),
        ({"lower_write_policy": "write_through"}, "lower_write_policy: given write_through with inclusion=exclusive"),
        ({"keeps_on_the_way": True}, "keeps_on_the_way: given true with inclusion=exclusive"),
        ({"hits_count_below": True}, "hits_count_below: given true with inclusion=exclusive"),
        ({"spares_hbm": True}, "spares_hbm: given true with inclusion=exclusive"),
        ({"write_threshold": 2}, "write_threshold: given 2 with write_policy=write_back"),
        ({**THROUGH, "lower_write_threshold": 2}, "lower_write_threshold: given 2 with lower_write_policy=write_back"),
        ({**SELECTIVE, "write_threshold": None}, "write_threshold: given None with write_policy=write_through_sel"),
        ({**SELECTIVE, "write_threshold": 0}, "write_threshold"),
        ({"evict_at_ratio": 0.0}, "evict_at_ratio"),
        ({"evict_at_ratio": 1.1}, "evict_at_ratio"),
        ({"evict_ratio": -0.1}, "evict_ratio"),
        ({"evict_ratio": float("nan")}, "evict_ratio"),
        ({"write_buffer_s": -1.0}, "write_buffer_s"),
        ({"write_buffer_s": float("nan")}, "write_buffer_s"),
        ({"least_load_tokens": -1}, "least_load_tokens"),
        ({"deadline_s": 1.0}, "deadline_s: given 1.0 with load_or_recompute=always_load"),
    ],
)
def test_rules_that_contradict_each_other_are_refused(rules: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        Served([1, 1, 0, 0], **rules)
    assert Placement.model_fields.keys() >= rules.keys()
