"""Placements by the names of systems: what happens to a few requests, beside what the system does where it differs.

The rules of each system stand in its YAML; its events were worked out by hand from them, for prompts of whole blocks
that come one after another, with LRU. A row: blocks | hits in HBM/DRAM/SSD | what HBM evicts, in order | below HBM, in
order | what DRAM holds, the oldest first (sglang: by name). `hd A` copies A from HBM to DRAM, `ds` and `dh` likewise,
`HD` and `DS` move what was evicted on; `-d A` evicts A from DRAM, `+d A` leaves a copy there of what comes up from SSD.
In which order the blocks of one request are copied is ours; upstream, they are one transfer.
"""

from __future__ import annotations

import pytest
from placement_events import Recorder
from placement_stacks import CONF
from serving_scenarios import Request, option, scenario

from pipeline.placement.base import OFFLOAD, Placement
from pipeline.placement.state import DRAM, HBM, SSD
from pipeline.serving.simulate import simulate

TRACES = """
prefix_reuse 4/0/0
  ABC | 0/0/0 | -   | - | -
  DE  | 0/0/0 | C   | - | -
  ABC | 2/0/0 | E   | - | -
  FGH | 0/0/0 | DCB | - | -
  DE  | 0/0/0 | AH  | - | -
  ABC | 0/0/0 | GFE | - | -
  DE  | 1/0/0 | C   | - | -

vllm_offload 4/4/0
  ABC | 0/0/0 | -   | hd CBA | CBA
  DE  | 0/0/0 | C   | hd E, -d C, hd D | BAED
  ABC | 2/0/0 | E   | -d E, hd C | DCBA
  FGH | 0/0/0 | DCB | -d D, hd H, -d C, hd G, -d B, hd F | AHGF
  DE  | 0/0/0 | AH  | -d A, hd E, -d H, hd D | GFED
  ABC | 0/0/0 | GFE | -d G, hd C, -d F, hd B, -d E, hd A | DCBA
  DE  | 1/0/0 | C   | -d C, hd E | BAED

vllm_offload 4/6/0
  ABC | 0/0/0 | -   | hd CBA | CBA
  DE  | 0/0/0 | C   | hd ED | CBAED
  ABC | 2/1/0 | E   | dh C | EDCBA
  FGH | 0/0/0 | DCB | hd H, -d E, hd G, -d D, hd F | CBAHGF
  DE  | 0/0/0 | AH  | -d C, hd E, -d B, hd D | AHGFED
  ABC | 0/1/0 | GFE | dh A, -d H, hd C, -d G, hd B | FEDCBA
  DE  | 1/1/0 | C   | dh E | FCBAED

vllm_offload 4/2/0
  AB  | 0/0/0 | -   | hd BA | BA
  CD  | 0/0/0 | -   | -d B, hd D, -d A, hd C | DC
  CD  | 2/0/0 | -   | - | DC
  EF  | 0/0/0 | BA  | -d D, hd F, -d C, hd E | FE
  CD  | 2/0/0 | -   | -d F, hd D, -d E, hd C | DC

vllm_offload 4/2/0: the whole store of a step is refused where it does not fit; here its blocks come one by one
  ABC | 0/0/0 | -   | hd CB, -d C, hd A | BA
      upstream: refused
  DE  | 0/0/0 | C   | -d B, hd E, -d A, hd D | ED
      upstream: hd ED
  ABC | 2/0/0 | E   | -d E, hd C, -d D, hd B, -d C, hd A | BA
      upstream: refused

lmcache 4/4/8: a lookup that stops at A or D, which are not in DRAM, does not touch what DRAM has of the rest
  ABC | 0/0/0 | -   | hd A, ds A, hd B, ds B, hd C, ds C | ABC
  DE  | 0/0/0 | C   | hd D, ds D, -d A, hd E, ds E | BCDE
  ABC | 2/1/0 | E   | dh C | DECB
      upstream: ... | BCDE
  FGH | 0/0/0 | DCB | -d D, hd F, ds F, -d E, hd G, ds G, -d C, hd H, ds H | BFGH
      upstream: -d BCD, hd FGH | EFGH
  DE  | 0/0/2 | AH  | -d B, +d D, -d F, +d E, sh DE | GHDE
      upstream: -d E, +d D, -d F, +d E | GHDE
  ABC | 0/0/3 | GFE | -d G, +d A, -d H, +d B, -d D, +d C, sh ABC | EABC
  DE  | 1/1/0 | C   | dh E | ABCE
      upstream: ... | EABC

lmcache 4/6/8
  ABC | 0/0/0 | -   | hd A, ds A, hd B, ds B, hd C, ds C | ABC
  DE  | 0/0/0 | C   | hd D, ds D, hd E, ds E | ABCDE
  ABC | 2/1/0 | E   | dh C | DECBA
  FGH | 0/0/0 | DCB | hd F, ds F, -d D, hd G, ds G, -d E, hd H, ds H | CBAFGH
  DE  | 0/0/2 | AH  | -d C, +d D, -d B, +d E, sh DE | AFGHDE
  ABC | 0/1/2 | GFE | -d F, +d B, -d G, +d C, dh A, sh BC | HDEABC
  DE  | 1/1/0 | C   | dh E | HABCED

lmcache 4/6/0
  ABC | 0/0/0 | -   | hd ABC | ABC
  DE  | 0/0/0 | C   | hd DE | ABCDE
  ABC | 2/1/0 | E   | dh C | DECBA
  FGH | 0/0/0 | DCB | hd F, -d D, hd G, -d E, hd H | CBAFGH
  DE  | 0/0/0 | AH  | -d C, hd D, -d B, hd E | AFGHDE
  ABC | 0/1/0 | GFE | dh A, -d F, hd B, -d G, hd C | HDEABC
  DE  | 1/1/0 | C   | dh E | HABCED

lmcache 4/2/8: a store that does not fit is cut at its end; a lookup needs its own run from block 0
  ABC | 0/0/0 | -   | hd A, ds A, hd B, ds B, -d A, hd C, ds C | BC
      upstream: hd AB, ds AB | AB
  DE  | 0/0/0 | C   | -d B, hd D, ds D, -d C, hd E, ds E | DE
      upstream: -d AB | DE
  ABC | 2/0/1 | E   | -d D, +d C, sh C | EC
      upstream: 2/0/0 -d D, hd C, ds C | EC

sglang_hicache 4/6/0
  ABC | 0/0/0 | -   | hd CBA | ABC
  DE  | 0/0/0 | C   | hd ED | ABCDE
  ABC | 2/1/0 | E   | dh C | ABCDE
  FGH | 0/0/0 | DCB | hd H, -d E, hd G, -d D, hd F | ABCFGH
  DE  | 0/0/0 | AH  | -d C, hd E, -d B, hd D | ADEFGH
  ABC | 0/1/0 | GFE | dh A, -d H, hd C, -d G, hd B | ABCDEF
  DE  | 1/1/0 | C   | dh E | ABCDEF

sglang_hicache 4/2/0
  AB  | 0/0/0 | -   | hd BA | AB
  CD  | 0/0/0 | -   | - | AB
  CD  | 2/0/0 | -   | - | AB
  EF  | 0/0/0 | BA  | -d B, hd F, -d A, hd E | EF
  CD  | 2/0/0 | -   | - | EF

sglang_hicache 4/2/0: a whole node is written or refused
  ABC | 0/0/0 | -   | hd CB | BC
      upstream: refused
  DE  | 0/0/0 | C   | -d C, hd E | BE
      upstream: hd ED | ED
  ABC | 2/0/0 | E   | -d E, hd C | BC
      upstream: -d E, then refused

sglang_hicache 4/6/8: a prefetch goes before the request, and is refused where DRAM has no room for all of it
  ABC | 0/0/0 | -   | hd C, ds C, hd B, ds B, hd A, ds A | ABC
  DE  | 0/0/0 | C   | hd E, ds E, hd D, ds D | ABCDE
  ABC | 2/1/0 | E   | dh C | ABCDE
  FGH | 0/0/0 | DCB | hd H, ds H, -d E, hd G, ds G, -d D, hd F, ds F | ABCFGH
  DE  | 0/0/2 | AH  | -d C, +d D, -d B, +d E, sh DE | ADEFGH
      upstream: ... before the evictions from HBM
  ABC | 0/1/2 | GFE | -d H, +d B, dh A, sh BC | ABDEFG
      upstream: 1/0 -d H, refused, dh A, -d G, hd BC | FEDCBA
  DE  | 1/1/0 | C   | dh E | ABDEFG

sglang_hicache_write_back 4/4/0
  ABC | 0/0/0 | -   | - | -
  DE  | 0/0/0 | C   | HD C | C
  ABC | 2/1/0 | E   | HD E, dh C | CE
  FGH | 0/0/0 | DCB | HD DB | BCDE
  DE  | 0/2/0 | AH  | -d C, HD A, -d B, HD H, dh DE | ADEH
  ABC | 0/1/0 | GFE | -d H, HD G, dh A, -d G, HD F | ADEF
  DE  | 1/1/0 | C   | -d F, HD C, dh E | ACDE

dynamo_kvbm 4/4/8
  ABC | 0/0/0 | -   | hd ABC | ABC
  DE  | 0/0/0 | C   | hd D, -d A, hd E | BCDE
  ABC | 2/1/0 | E   | dh C | BDEC
  FGH | 0/0/0 | DCB | -d B, hd F, -d D, hd G, -d E, hd H | CFGH
  DE  | 0/0/0 | AH  | -d C, hd D, ds D, -d F, hd E, ds E | GHDE
  ABC | 0/0/0 | GFE | -d G, hd A, ds A, -d H, hd B, ds B, -d D, hd C, ds C | EABC
  DE  | 1/1/0 | C   | dh E | ABCE
  FGH | 0/0/0 | BAE | -d A, hd F, ds F, -d B, hd G, ds G, -d C, hd H, ds H | EFGH
  ABC | 0/0/3 | DHG | sh ABC | EFGH

dynamo_kvbm 4/6/8: each block is offered in turn; here that C is computed is a use of its copy before any is written
  ABC | 0/0/0 | -   | hd ABC | ABC
  DE  | 0/0/0 | C   | hd DE | ABCDE
  ABC | 2/1/0 | E   | dh C | ABDEC
  FGH | 0/0/0 | DCB | hd F, -d A, hd G, -d B, hd H | DECFGH
  DE  | 0/2/0 | AH  | dh DE | CFGHDE
  ABC | 0/0/0 | GFE | -d F, hd A, ds A, -d G, hd B, ds B | HDECAB
      upstream: -d C, hd A, ds A, -d F, hd B, ds B, -d G, hd C, ds C | HDEABC
  DE  | 1/1/0 | C   | dh E | HDCABE
      upstream: ... | HDABCE

dynamo_kvbm 4/2/0
  ABC | 0/0/0 | -   | hd AB, -d A, hd C | BC
  DE  | 0/0/0 | C   | -d B, hd D, -d C, hd E | DE
  ABC | 2/0/0 | E   | -d D, hd C | EC

mooncake_store 4/4/0: a lookup needs its own run from block 0; an eviction follows the write that crosses the watermark
  ABC | 0/0/0 | -   | hd ABC | ABC
  DE  | 0/0/0 | C   | -d A, hd D, -d B, hd E | CDE
      upstream: hd D, -d A, hd E, -d B | CDE
  ABC | 2/1/0 | E   | dh C, -d D, hd A, -d E, hd B | CAB
      upstream: 2/0/0 hd A, -d D, hd B, -d E | CAB
  FGH | 0/0/0 | DCB | -d C, hd F, -d A, hd G, -d B, hd H | FGH
  DE  | 0/0/0 | AH  | -d F, hd D, -d G, hd E | HDE
  ABC | 0/0/0 | GFE | -d H, hd A, -d D, hd B, -d E, hd C | ABC
  DE  | 1/0/0 | C   | -d A, hd D, -d B, hd E | CDE

mooncake_store 4/6/0
  ABC | 0/0/0 | -   | hd ABC | ABC
  DE  | 0/0/0 | C   | hd DE | ABCDE
  ABC | 2/1/0 | E   | dh C | DEABC
  FGH | 0/0/0 | DCB | -d D, hd F, -d E, hd G, -d A, hd H | BCFGH
  DE  | 0/0/0 | AH  | -d B, hd D, -d C, hd E | FGHDE
  ABC | 0/0/0 | GFE | -d F, hd A, -d G, hd B, -d H, hd C | DEABC
  DE  | 1/1/0 | C   | dh E | ABCDE

cachedattention 4/4/8: a session moves as a whole, and leaves no copy where it was
  ABC | 0/0/0 | -   | hd CBA | CBA
  DE  | 0/0/0 | -   | hd E, -d C, DS C, hd D | BAED
      upstream: DS ABC, hd DE | DE
  ABC | 0/2/1 | -   | -d E, DS E, +d C, dh AB, sh C | DCBA
      upstream: 0/0/3 DS DE, sd ABC, dh ABC
  FGH | 0/0/0 | -   | -d D, DS D, hd H, -d C, hd G, -d B, DS B, hd F | AHGF
      upstream: DS ABC, hd FGH
  DE  | 0/0/2 | -   | -d A, DS A, +d D, -d H, DS H, +d E, sh DE | GFED
      upstream: DS FGH, sd DE, dh DE
  ABC | 0/0/3 | -   | -d G, DS G, +d A, -d F, DS F, +d B, -d E, +d C, sh ABC | DCBA
      upstream: DS DE, sd ABC, dh ABC
  DE  | 0/1/1 | -   | -d C, +d E, dh D, sh E | BAED
      upstream: 0/0/2 DS ABC, sd DE, dh DE

cachedattention 4/6/8: a session moves as a whole; one with a waiting job is spared, and fetched before it runs
  ABC | 0/0/0 | -   | hd CBA | CBA
  DE  | 0/0/0 | -   | hd ED | CBAED
  ABC | 0/3/0 | -   | dh ABC | EDCBA
  FGH | 0/0/0 | -   | hd H, -d E, DS E, hd G, -d D, DS D, hd F | CBAHGF
      upstream: DS ABC, hd FGH
  DE  | 0/0/2 | -   | -d C, DS C, +d D, -d B, DS B, +d E, sh DE | AHGFED
      upstream: 0/2/0 dh DE, then DS FGH, prefetch sd ABC
  ABC | 0/1/2 | -   | -d H, DS H, +d B, -d G, DS G, +d C, dh A, sh BC | FEDCBA
      upstream: 0/3/0 dh ABC
  DE  | 0/2/0 | -   | dh DE | FCBAED
"""


def parsed(text: str) -> list[tuple[str, list[str]]]:
    """Heading and rows of each trace; what upstream does is for the reader."""
    traces: list[tuple[str, list[str]]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        if "|" not in line and not line.startswith("upstream"):
            traces.append((line.split(":")[0], []))
        elif not line.startswith("upstream"):
            traces[-1][1].append(" | ".join(cell.strip() for cell in line.split("|")))
    return traces


@pytest.mark.parametrize(("heading", "rows"), parsed(TRACES))
def test_a_preset_does_what_its_system_does(heading: str, rows: list[str]) -> None:
    preset, capacity = heading.split()
    recorder = Recorder(preset, [int(blocks) for blocks in capacity.split("/")])
    happened = []
    for row in rows:
        chain = row.split(" | ")[0]
        *cells, dram = recorder.serve(chain)
        held = "".join(sorted(dram)) if preset.startswith("sglang") else dram
        happened.append(" | ".join([chain, *(cell or "-" for cell in (*cells, held))]))
    assert happened == rows


def test_every_preset_has_a_trace() -> None:
    options = {path.stem for path in (CONF / "placement").glob("*.yaml")}
    traced = {heading.split()[0] for heading, _ in parsed(TRACES)}
    streamed = {"full_cpu_offload", "infinigen", "h2o"}  # see test_serving_streaming.py
    assert options - traced == {"gpu_only", "tiered", *streamed}


def test_lmcache_waits_for_its_copies_to_dram_and_queues_those_to_disk() -> None:
    """The first step ends at 1.49; from then on 3 s of copies: the step begun then ends at 2.5, the next waits."""
    placement = option("placement", "lmcache", Placement)
    output = simulate(scenario([Request(0.0, 49, 3, "ABC")], hbm=8, dram=4, ssd=8, placement=placement))
    assert output.last_token_s[0] == pytest.approx(1.49 + 3 + 1.01)
    (use,) = output.instances
    assert use.moved_blocks[HBM, DRAM, OFFLOAD] == use.moved_blocks[DRAM, SSD, OFFLOAD] == 3


def test_what_leaves_hbm_with_its_request_is_written_by_then() -> None:
    """CachedAttention: a prompt is written with its second step, or, where there is none, as it leaves."""
    placement = option("placement", "cachedattention", Placement)
    first, second = Request(0.0, 33, 2, "AB"), Request(10.0, 33, 1, "AB")
    output = simulate(scenario([first, second], hbm=8, dram=4, placement=placement))
    assert output.rows.hit_tokens.tolist() == [[0, 0, 0, 0], [0, 32, 0, 0]]
    assert output.instances[0].moved_blocks[HBM, DRAM, OFFLOAD] == 2
    alone = simulate(scenario([second], hbm=8, dram=4, placement=placement))
    assert alone.instances[0].moved_blocks[HBM, DRAM, OFFLOAD] == 2
