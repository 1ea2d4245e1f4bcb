"""Measuring this machine: fits, clean-up, and what the result says of itself."""

from pathlib import Path

import numpy as np
import pytest
from hardware_options import model_of, values_of

from pipeline.hardware import probes
from pipeline.hardware.base import calibrate, links_of
from pipeline.hardware.fit import fit_line
from pipeline.hardware.probes import copy_in_dram, disk_transfers
from pipeline.hardware.spec import Hardware
from pipeline.spec import InputError, build
from pipeline.values import EngineLimits


def test_a_line_is_found_exactly() -> None:
    sizes = np.array([1e5, 1e6, 1e7])
    fit = fit_line(sizes, 2e-5 + sizes / 5e9)
    assert fit.bandwidth_bytes_per_s == pytest.approx(5e9)
    assert fit.latency_s == pytest.approx(2e-5)
    assert fit.fit_error_ratio == pytest.approx(0, abs=1e-9)


def test_latency_is_never_negative() -> None:
    sizes = np.array([1e5, 1e6, 1e7])
    assert fit_line(sizes, sizes / 5e9 * np.array([0.5, 1.0, 1.2])).latency_s >= 0


def test_times_that_do_not_grow_give_the_best_rate_seen() -> None:
    assert fit_line(np.array([1e5, 1e6]), np.array([1.0, 0.5])).bandwidth_bytes_per_s == 2e6


def test_copies_are_timed_by_size() -> None:
    moved = copy_in_dram([65536, 1048576], repeats=3)
    assert moved.moved_bytes.tolist() == [65536, 1048576]
    assert (moved.time_s > 0).all()


def test_the_temporary_file_is_removed(tmp_path: Path) -> None:
    writes, reads = disk_transfers(tmp_path, [4096, 65536], 262144, budget_s=0.2)
    assert (writes.time_s > 0).all()
    assert (reads.time_s > 0).all()
    assert list(tmp_path.iterdir()) == []


def test_the_temporary_file_is_removed_when_reading_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(probes, "_reads", fail)
    with pytest.raises(InputError, match=r"measuring in .* failed: Input/output error"):
        disk_transfers(tmp_path, [4096], 4096, budget_s=0.1)
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_direct_access_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.O_DIRECT", raising=False)
    writes, reads = disk_transfers(tmp_path, [4096], 65536, budget_s=0.1)
    assert "page cache" in writes.how
    assert "page cache" in reads.how


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"hardware.source.folder: .*nowhere cannot be written"):
        disk_transfers(tmp_path / "nowhere", [4096], 4096, budget_s=0.1)


def test_this_machine_is_measured_but_its_gpu_is_not(tmp_path: Path) -> None:
    values = values_of("hardware", "this_machine")
    values["source"] |= {
        "folder": str(tmp_path), "dram_block_bytes": [65536, 262144], "disk_block_bytes": [4096, 65536],
        "file_bytes": 262144, "budget_s": 0.2,
    }  # fmt: skip
    hardware = build(values, "hardware", Hardware)
    engine = EngineLimits(tensor_parallel=1, max_running=8, max_batched_tokens=512)
    found = calibrate(hardware, model_of("llama3_1_8b"), engine)
    assert (found.source, found.is_calibrated) == ("datasheet", False)
    rows = {(r["source_tier"], r["target_tier"]): r for r in found.link_calibration.to_pylist()}
    for tiers in (("dram", "ssd"), ("ssd", "dram"), ("dram", "dram")):
        assert "measured by us" in rows[tiers]["source"]
        assert rows[tiers]["fit_error_ratio"] is not None
    assert "measured by us" not in rows[("hbm", "dram")]["source"]
    assert set(links_of(found.link_calibration)) >= {("hbm", "dram"), ("dram", "hbm"), ("hbm", "hbm")}
    (gpu,) = [r for r in found.constants.to_pylist() if r["name"] == "datasheet_sample_count"]
    assert "roofline of h100_sxm, no GPU was measured" in gpu["source"]


@pytest.mark.parametrize("size", [1000, 4096 * 1000])
def test_blocks_must_be_aligned_and_fit_the_file(size: int) -> None:
    values = values_of("hardware", "this_machine")
    values["source"] |= {"disk_block_bytes": [4096, size], "file_bytes": 65536}
    with pytest.raises(
        InputError, match=f"disk_block_bytes: given {size}, expected multiples of 4096 up to file_bytes"
    ):
        build(values, "hardware", Hardware)
