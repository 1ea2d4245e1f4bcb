"""KV in DRAM that steps read and write, worked out by hand.

A step takes 1 s and 0.01 s for each token; 16 tokens of KV cross a link in 1 s. The request has three blocks and a
token, and puts out three tokens: 49 tokens are computed in its first step, 1 on 49 and 1 on 50 in the two others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_profiles import CORRECTIONS, INTERPOLATION, skew_samples, tables
from serving_scenarios import Request, engine, links, mixed, option, scenario, split
from test_serving_exactness import TABLE, assert_same, limits, workloads

from pipeline.placement.base import OFFLOAD, ONBOARD, Placement
from pipeline.placement.state import DRAM, HBM
from pipeline.placement.streaming import Streaming
from pipeline.predictor.kernel_tables import kernel_step_table
from pipeline.predictor.step_table import linear_step_table
from pipeline.serving.cluster import Cluster
from pipeline.serving.invariants import check
from pipeline.serving.link import BLOCKS, BUSY
from pipeline.serving.simulate import simulate
from pipeline.spec import InputError

ABC = ("A", "B", "C")
STREAMED = ("full_cpu_offload", "infinigen", "h2o")


def served(name: str, requests: list[Request], overlaps: bool = True, **changes: Any) -> Any:
    placement = option("placement", name, Placement, streaming=streaming(name, overlaps))
    return simulate(scenario(requests, **({"hbm": 4, "dram": 4, "placement": placement} | changes)))


def streaming(name: str, overlaps: bool) -> dict[str, Any]:
    given = option("placement", name, Placement).streaming
    return {"_target_": "pipeline.placement.streaming.Streaming"} | given.model_dump() | {"overlaps": overlaps}


def once(name: str, **changes: Any) -> tuple[float, float]:
    """When the first and the last token come."""
    output = served(name, [Request(0.0, 49, 3, ABC)], **changes)
    return output.first_token_s[0], output.last_token_s[0]


def test_a_step_takes_what_its_reads_and_writes_take() -> None:
    # 49/16 s to write the prompt; then 49/16 and 50/16 s to read it: each longer than the step.
    assert once("full_cpu_offload") == pytest.approx((49 / 16, 148 / 16))
    # One after another: the steps, all that is written (49 + 1 + 1 tokens), and all that is read.
    assert once("full_cpu_offload", overlaps=False) == pytest.approx((1.49 + 49 / 16, 3.51 + 51 / 16 + 99 / 16))
    # A fifth of the tokens are read in 0.6 s, behind a step of 1.01 s.
    assert once("infinigen") == pytest.approx((49 / 16, 49 / 16 + 2.02))
    assert once("infinigen", overlaps=False) == pytest.approx((1.49 + 49 / 16, 3.51 + 51 / 16 + 0.2 * 99 / 16))
    assert once("h2o", dram=0) == pytest.approx((1.49, 3.51))


def test_what_is_attended_to_is_what_is_read_or_kept() -> None:
    # A second per token that is attended to: 50 and 51, or a fifth of them.
    table = linear_step_table(0.0, 0.0, 0.0, 1.0)
    fast = links(1e9)
    assert once("full_cpu_offload", step_table=table, links=fast)[1] == pytest.approx(101)
    assert once("infinigen", step_table=table, links=fast)[1] == pytest.approx(20.2)
    assert once("h2o", step_table=table, links=fast)[1] == pytest.approx(20.2)


def test_nothing_is_kept_for_the_next_request_and_what_crossed_is_counted() -> None:
    output = served("full_cpu_offload", [Request(0.0, 49, 3, ABC), Request(20.0, 49, 3, ABC)])
    assert output.rows.hit_tokens.sum() == 0
    assert output.first_token_s[1] - 20 == pytest.approx(output.first_token_s[0])
    read, written = output.accounts[0, DRAM, HBM, ONBOARD], output.accounts[0, HBM, DRAM, OFFLOAD]
    # FlexGen knows no blocks: 49 and 50 tokens are read; 49, 1 and 1 are written.
    assert (read[BLOCKS], written[BLOCKS]) == pytest.approx((2 * 99 / 16, 2 * 51 / 16))
    assert read[BUSY] == pytest.approx(2 * 99 / 16)
    assert output.accounts[..., BLOCKS].sum() == read[BLOCKS] + written[BLOCKS]
    (use,) = output.instances
    assert use.capacity_blocks.tolist() == [4, 4, 0, 0]
    assert use.peak_used_blocks.tolist() == [0, 4, 0, 0]


def test_a_prompt_in_chunks_reads_what_was_computed_before() -> None:
    # 30 tokens are written in 30/16 s; then 19 in 19/16 s, behind reading those 30 again.
    output = served("full_cpu_offload", [Request(0.0, 49, 1, ABC)], engine=engine(max_batched_tokens=30))
    assert output.first_token_s[0] == pytest.approx(60 / 16)


@pytest.mark.parametrize(
    ("name", "hbm", "dram", "held_tokens"),
    [("h2o", 4, 0, 320), ("full_cpu_offload", 2, 5, 80), ("infinigen", 2, 5, 80)],
)
def test_requests_hold_what_the_tiers_hold_by_their_shares(name: str, hbm: int, dram: int, held_tokens: int) -> None:
    fits, exceeds = Request(0.0, held_tokens - 4, 5), Request(0.0, held_tokens - 4, 6)
    output = served(name, [fits, exceeds], hbm=hbm, dram=dram)
    assert output.reject_reason.tolist() == ["", "exceeds_kv_capacity"]
    shares = option("placement", name, Placement).streaming.ratios
    held = np.array(shares) * held_tokens / 16
    assert output.instances[0].peak_used_blocks == pytest.approx(held)


def test_two_requests_share_the_pool() -> None:
    # Each needs three of the five blocks: the second waits for the first.
    output = served("full_cpu_offload", [Request(0.0, 40, 2), Request(0.0, 40, 2)], hbm=1, dram=5)
    assert output.rows.scheduled_s[1] == output.last_token_s[0]


@pytest.mark.parametrize("joint", [False, True])
@settings(max_examples=30, deadline=None)
@given(trace=workloads(), bounds=limits(asynchronous=True), name=st.sampled_from(STREAMED))
def test_runs_of_decoding_stream_the_same(joint: bool, trace: Any, bounds: Any, name: str) -> None:
    least = int(-(-(trace.input_tokens + trace.output_tokens).max() // trace.block_tokens))
    measured = kernel_step_table(tables(skew_samples()), 2, bounds, INTERPOLATION, CORRECTIONS, 0) if joint else TABLE
    case = scenario(
        trace,
        hbm=least,
        dram=least + 3,
        engine=bounds,
        cluster=mixed(2),
        step_table=measured,
        placement=option("placement", name, Placement),
    )
    output = Cluster(case).run()
    check(output)
    assert_same(output, Cluster(case, coasts=False).run(), "coasting changes something")


def test_full_ratios_in_hbm_are_gpu_only_without_reuse() -> None:
    requests = [Request(0.0, 49, 3, ABC), Request(1.0, 33, 4, ABC[:2])]
    plain = scenario(requests, hbm=9, placement=option("placement", "gpu_only", Placement))
    all_in_hbm = {"_target_": "pipeline.placement.streaming.Streaming", "dram_ratio": 0.0, "read_ratio": 0.0}
    whole = option("placement", "h2o", Placement, streaming=all_in_hbm | {"hbm_ratio": 1.0, "overlaps": True})
    expected = simulate(replace(plain, engine=plain.engine.model_copy(update={"prefix_cache": False})))
    assert simulate(replace(plain, placement=whole)).last_token_s.tolist() == expected.last_token_s.tolist()


def test_mistakes_are_told() -> None:
    with pytest.raises(InputError, match=r"expected blocks there"):
        served("full_cpu_offload", [Request(0.0, 49, 3)], dram=0)
    with pytest.raises(ValueError, match="prefill and decode apart"):
        served("h2o", [Request(0.0, 49, 3)], cluster=split())
    with pytest.raises(ValueError, match="expected read_ratio up to dram_ratio"):
        Streaming(hbm_ratio=0.5, dram_ratio=0.1, read_ratio=0.2, overlaps=True)
    with pytest.raises(ValueError, match="expected read_ratio up to dram_ratio, and with hbm_ratio more than 0"):
        Streaming(hbm_ratio=0.0, dram_ratio=0.1, read_ratio=0.0, overlaps=True)
    with pytest.raises(InputError, match="given write_back with streaming"):
        option("placement", "h2o", Placement, write_policy="write_back")
