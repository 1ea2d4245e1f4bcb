"""Hardware options build from conf/, and figures that no hardware reaches are refused with the limit named."""

import copy

import pytest
from hardware_options import HARDWARE, values_of

from pipeline.hardware.spec import Hardware
from pipeline.spec import InputError, build


@pytest.fixture(scope="module")
def h100() -> dict:
    return values_of("hardware", "h100_sxm")


def refused(values: dict) -> str:
    with pytest.raises(InputError) as caught:
        build(values, "hardware", Hardware)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("name", HARDWARE)
def test_every_option_builds_under_its_own_name(name: str) -> None:
    values = values_of("hardware", name)
    if name == "measured_samples":
        assert values["source"]["path"] == "???"
        values["source"]["path"] = "samples.csv"
    hardware = build(values, "hardware", Hardware)
    assert hardware.name == name


def test_pcie_of_12500_gb_per_s_is_refused_naming_the_limit(h100: dict) -> None:
    values = copy.deepcopy(h100)
    values["dram_link"]["bandwidth_bytes_per_s"]["value"] = 1.25e13
    assert refused(values) == (
        "hardware.dram_link.bandwidth_bytes_per_s: given 1.25e+13, but pcie_gen5_x16 carries at most 6.4e+10 bytes/s "
        "one way"
    )


def test_sparse_flops_are_refused(h100: dict) -> None:
    values = copy.deepcopy(h100)
    values["bf16_flops_per_s"]["value"] = 1.979e15
    assert "h100 does at most 9.89e+14 FLOP/s dense, without sparsity" in refused(values)


def test_hbm_bandwidth_over_the_chips_is_refused(h100: dict) -> None:
    values = copy.deepcopy(h100)
    values["hbm_bytes_per_s"]["value"] = 3.35e13
    assert refused(values).startswith(
        "hardware.hbm_bytes_per_s: given 3.35e+13, but h100 reads at most 3.35e+12 bytes/s"
    )


def test_drives_in_parallel_multiply_the_limit(h100: dict) -> None:
    values = copy.deepcopy(h100)
    values["ssd_read_link"]["count"] = 2
    values["ssd_read_link"]["bandwidth_bytes_per_s"]["value"] = 14e9
    assert build(values, "hardware", Hardware).ssd_read_link.count == 2
    values["ssd_read_link"]["bandwidth_bytes_per_s"]["value"] = 14.1e9
    assert "2 x nvme_gen4 carry at most 1.4e+10 bytes/s one way" in refused(values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chip": "h1000"}, "hardware.chip: given 'h1000', expected one of a30, a40, a100"),
        ({"dram_link": {"kind": "pcie5"}}, "hardware.dram_link.kind: given 'pcie5', expected one of pcie_gen3_x16"),
        (
            {"dram_link": {"latency_s": {"value": -1e-6}}},
            "hardware.dram_link.latency_s: given -1e-06, expected 0 s or more",
        ),
        ({"gpu_link": {"bandwidth_bytes_per_s": {"value": 0}}}, "hardware.gpu_link.bandwidth_bytes_per_s: given 0"),
        ({"hbm_bytes": {"value": -80e9}}, "hardware.hbm_bytes: given -8e+10, expected more than 0"),
        ({"gpus_per_node": 0}, "hardware.gpus_per_node: given 0"),
        ({"hbm_gb": 80}, "hardware.hbm_gb: unknown key"),
        ({"dram_link": {"bandwidth_bytes_per_s": {"value": "fast"}}}, "hardware.dram_link.bandwidth_bytes_per_s.value"),
        ({"dram_link": {"bandwidth_bytes_per_s": {"value": float("nan")}}}, "bandwidth_bytes_per_s.value: given nan"),
    ],
)
def test_wrong_values_are_named_with_their_field(h100: dict, change: dict, message: str) -> None:
    def merge(into: dict, new: dict) -> None:
        for key, value in new.items():
            if isinstance(value, dict):
                merge(into[key], value)
            else:
                into[key] = value

    values = copy.deepcopy(h100)
    merge(values, change)
    assert message in refused(values)
