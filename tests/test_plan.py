"""The project's own studies: they lay out, and what cannot be run stops in one line before any job."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.parse import plan_of
from pipeline.plan import OUTPUTS, Plan
from pipeline.spec import InputError

ROOT = Path(__file__).parents[1]
STUDIES = [file.stem for file in sorted((ROOT / "conf" / "study").glob("*.yaml")) if file.stem != "fidelity"]


@pytest.fixture(autouse=True)
def _no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KVPLAN_DATA", raising=False)


def _plan(text: str = "", study: str = "smoke") -> Plan:
    return plan_of(ROOT, {"study": study, "set": text})


def _changed(before: Plan, after: Plan) -> dict[str, int]:
    """New jobs by stage."""
    new = {stage: len(set(after.keys(stage)) - set(before.keys(stage))) for stage in OUTPUTS}
    return {stage: count for stage, count in new.items() if count}


@pytest.mark.parametrize("study", STUDIES)
def test_every_study_lays_out(study: str) -> None:
    plan = _plan(study=study)
    assert [stage for stage in OUTPUTS if not plan.keys(stage)] == ["replay"]
    assert len({cell["values"]["seed"] for item in plan.items["place"].values() for cell in item.config["cells"]}) >= 2


def test_the_default_study_says_what_it_lacks_and_takes_what_there_is(
    monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    without = _plan(study="default")
    assert any("KVPLAN_DATA is not set" in remark for remark in without.remarks)
    monkeypatch.setenv("KVPLAN_DATA", str(data))
    labels = [item.label for item in _plan(study="default").items["place"].values()]
    assert any("mooncake_conversation" in label for label in labels)
    assert len(labels) <= 20


def test_the_tuning_seed_is_not_judged() -> None:
    plan = _plan(study="default")
    judged = {cell["values"]["seed"] for item in plan.items["place"].values() for cell in item.config["cells"]}
    tuned = {item.config["cell"]["seed"] for item in plan.items["capacity"].values()}
    assert not judged & tuned


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("", {}),
        ("report_slo=paper_tight price=paper_2609_16215", {}),
        ("routing=round_robin,least_loaded", {"route": 1}),
        ("eviction=lru,fifo", {"place": 1}),
        ("eviction.small_ratio=0.2", {"place": 1}),
        ("predictor=extra_trees", {"train": 1, "capacity": 2, "place": 2, "route": 2}),
        ("engine.memory_utilisation=0.8", {"capacity": 2, "place": 2, "route": 2}),
        ("load=rate_1", {"place": 2, "route": 2}),
        ("seed=0,1,2", {"trace": 1, "place": 2, "route": 2}),
        ("hardware=a100_sxm", {"calibrate": 1, "train": 1, "capacity": 2, "place": 2, "route": 2}),
        ("trace=agent trace.session_count=20", {"trace": 3, "capacity": 2, "place": 2, "route": 2}),
    ],
)
def test_a_change_makes_new_exactly_what_depends_on_it(setting: str, expected: dict[str, int]) -> None:
    assert _changed(_plan(), _plan(setting)) == expected


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("eviction=lruu", "eviction: given 'lruu', expected one of fifo, lfu, lru"),
        ("engine.max_runing=3", "engine.max_runing: unknown key 'max_runing' in engine; allowed: "),
        ("engine.max_running=0", "engine.max_running: given 0: Input should be greater than 0"),
        ("engine.max_running=many", "engine.max_running: given 'many'"),
        ("engine.tensor_parallel=3", "given 3, but llama3_1_8b has 32 heads and 8 KV heads; allowed: 1, 2, 4, 8"),
        ("model=llama3_1_70b", "the weights of llama3_1_70b take"),
        (
            "hardware.dram_link.bandwidth_bytes_per_s.value=1.25e13",
            "hardware.dram_link.bandwidth_bytes_per_s: given 1.25e+13, but pcie_gen5_x16 carries at most 6.4e+10",
        ),
        ("tiers.dram_bytes=1", "tiers.dram_bytes: given 1 bytes, which hold no block of 64 tokens"),
        ("tiers.dram_bytes=-1", "tiers.dram_bytes: given -1"),
        ("trace=mooncake_file", "trace.path: missing"),
        ("trace=mooncake_file trace.path=/no/such/file", "given '/no/such/file', but there is no such file"),
        ("trace=mooncake_conversation", "KVPLAN_DATA is not set"),
        ("load.share_of_capacity_ratio=0", "load.share_of_capacity_ratio: given 0"),
    ],
)
def test_what_cannot_be_run_stops_in_one_line(setting: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        _plan(setting)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"study": "smok"}, "study: given 'smok', expected one of"),
        ({"study": 3}, "study: given 3"),
        ({"stduy": "smoke"}, "--config: unknown key 'stduy'; allowed: study, set"),
        ({"set": 3}, "set: given 3, which is not text"),
    ],
)
def test_the_command_line_is_checked(config: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan_of(ROOT, config)


def test_a_trace_that_changed_is_another_trace(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    text = (ROOT / "tests/data/requests_small.csv").read_text()
    file.write_text(text)
    setting = f"trace=csv_file trace.path={file} trace.input_column=input trace.output_column=output"
    before = _plan(setting)
    file.write_text(text + text.splitlines()[-1] + "\n")
    assert _changed(before, _plan(setting))["trace"] >= 1


def test_without_kernel_tables_datasheet_figures_stand_in_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.hardware.silicon.Silicon.available", staticmethod(lambda: False))
    plan = _plan()
    assert any("uncalibrated" in remark for remark in plan.remarks)
    (item,) = plan.items["calibrate"].values()
    assert item.config["hardware"]["source"] == {"_target_": "pipeline.hardware.datasheet.Datasheet"}


def test_a_replay_is_a_job_of_its_own_for_each_run(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.json").write_text("{}")
    before = _plan(f"fidelity.cases={tmp_path}", "fidelity")
    assert {stage: len(before.keys(stage)) for stage in OUTPUTS if before.keys(stage)} == {"replay": 2}
    assert sorted(item.label for item in before.items["replay"].values()) == ["a", "b"]
    assert len(_plan(f"fidelity.cases={tmp_path / 'a'}", "fidelity").keys("replay")) == 1
    (tmp_path / "a" / "meta.json").write_text("[]")
    assert _changed(before, _plan(f"fidelity.cases={tmp_path}", "fidelity")) == {"replay": 1}


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("", "fidelity.cases: missing; set KVPLAN_DATA"),
        ("fidelity.cases=/nowhere", "given '/nowhere', expected a folder"),
    ],
)
def test_without_runs_to_replay_there_is_one_line(setting: str, line: str) -> None:
    with pytest.raises(InputError, match=line):
        _plan(setting, "fidelity")
