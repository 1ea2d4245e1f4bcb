"""The project's own studies: they lay out, and what cannot be run stops in one line before any job."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.parse import plan_of
from pipeline.plan import OUTPUTS, Plan, freeze
from pipeline.spec import InputError

ROOT = Path(__file__).parents[1]
STUDIES = [file.stem for file in sorted((ROOT / "conf" / "study").glob("*.yaml")) if file.stem != "fidelity"]


@pytest.fixture(autouse=True)
def _no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KVPLAN_DATA", raising=False)


def _plan(text: str = "", study: str = "smoke") -> Plan:
    return plan_of(ROOT, {"study": study, "set": text})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("seed=0,1", "seed=1,0"),
        ("seed=0,1", "seed=shuffle(0,1)"),
        ("eviction=lru,fifo", "eviction=fifo,lru"),
        ("slo.ttft_ms=500,800.0", "slo.ttft_ms=800,500"),
        ("load=rate_1,share_70", "load=share_70,rate_1"),
    ],
)
def test_the_order_of_an_axis_is_no_content(one: str, other: str) -> None:
    assert _plan(one).aggregate.key == _plan(other).aggregate.key


def test_a_job_rests_on_all_that_any_of_its_cells_does() -> None:
    plan = _plan("load=rate_1,share_70")
    for stage in ("place", "route"):
        for item in plan.items[stage].values():
            needed = {cell["upstream"].get("capacity") for cell in item.config["cells"]}
            assert needed == {None, *item.upstream["capacity"]}


def test_all_jobs_stand_in_the_index(tmp_path: Path) -> None:
    plan = _plan()
    freeze(plan, tmp_path)
    rows = [line.split("\t") for line in (tmp_path / "items/smoke.tsv").read_text().splitlines()]
    assert {tuple(row[:2]) for row in rows[1:]} == {
        *((stage, key) for stage in OUTPUTS for key in plan.keys(stage)),
        ("aggregate", plan.aggregate.key),
    }
    assert all((tmp_path / "items" / stage / f"{key}.json").is_file() for stage, key, _ in rows[1:])


def _changed(before: Plan, after: Plan) -> dict[str, int]:
    """New jobs by stage."""
    new = {stage: len(set(after.keys(stage)) - set(before.keys(stage))) for stage in OUTPUTS}
    return {stage: count for stage, count in new.items() if count}


@pytest.mark.parametrize("study", STUDIES)
def test_every_study_lays_out(study: str) -> None:
    plan = _plan(study=study)
    assert [stage for stage in OUTPUTS if not plan.keys(stage)] == ["fit", "replay"]  # no file, no measured runs
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


def test_a_large_trace_is_given_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.jsonl"
    with path.open("wb") as file:
        file.truncate(10**9)
    plan = _plan(f"trace=mooncake_file trace.path={path}")
    assert plan.traffic_mb("trace", plan.keys("trace")[0]) == 4000
    assert _plan().traffic_mb("describe", _plan().keys("describe")[0]) == 2000


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
        ("predictor=extra_trees", {"train": 1, "break_even": 1, "capacity": 2, "place": 2, "route": 2}),
        ("engine.memory_utilisation=0.8", {"describe": 1, "capacity": 2, "place": 2, "route": 2}),
        ("load=rate_1", {"place": 2, "route": 2}),
        ("seed=0,1,2", {"trace": 1, "place": 2, "route": 2}),
        (
            "hardware=a100_sxm",
            {"calibrate": 1, "train": 1, "break_even": 1, "describe": 1, "capacity": 2, "place": 2, "route": 2},
        ),
        ("engine.block_tokens=32", {"break_even": 1, "describe": 1, "capacity": 2, "place": 2, "route": 2}),
        ("tiers.dram_bytes=128e9", {"describe": 1, "capacity": 2, "place": 2, "route": 2}),
        ("trace=agent trace.session_count=20", {"trace": 3, "describe": 1, "capacity": 2, "place": 2, "route": 2}),
    ],
)
def test_a_change_makes_new_exactly_what_depends_on_it(setting: str, expected: dict[str, int]) -> None:
    assert _changed(_plan(), _plan(setting)) == expected


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("eviction=lruu", "eviction: given 'lruu', expected one of arc, belady, ewma, fifo, "),
        ("engine.max_runing=3", "engine.max_runing: unknown key 'max_runing' in engine; allowed: "),
        ("engine.max_running=0", "engine.max_running: given 0: Input should be greater than 0"),
        ("engine.max_running=many", "engine.max_running: given 'many'"),
        ("engine.tensor_parallel=3", "given 3, but llama3_1_8b has 32 heads and 8 KV heads; allowed: 1, 2, 4, 8"),
        ("model=llama3_1_70b", "the weights of llama3_1_70b take"),
        (
            "hardware.dram_link.bandwidth_bytes_per_s.value=1.25e13",
            "hardware.dram_link.bandwidth_bytes_per_s: given 1.25e+13, but pcie_gen5_x16 carries at most 6.4e+10",
        ),
        ("tiers.dram_bytes=1", "tiers.dram_bytes: given 1 bytes for an instance, which hold no block of 64 tokens"),
        ("tiers.dram_bytes=-1", "tiers.dram_bytes: given -1"),
        ("trace=mooncake_file", "trace.path: missing"),
        ("trace=mooncake_file trace.path=/no/such/file", "given '/no/such/file', but there is no such file"),
        ("trace=mooncake_conversation", "KVPLAN_DATA is not set"),
        ("load.share_of_capacity_ratio=0", "load.share_of_capacity_ratio: given 0"),
        (
            "load.rate_per_s=3",
            "unknown key 'rate_per_s' in load; allowed: share_of_capacity_ratio, scale_by; load=rate_1 has it",
        ),
        (
            "engine.kv_budget_tokens=10000000",
            "but beside the weights of llama3_1_8b 1 rank(s) hold at most 532832 tokens",
        ),
        (
            "engine.max_running=10000000000",
            "engine.max_running: given 10000000000: Input should be less than or equal to",
        ),
        ("engine.max_running=true", "engine.max_running: given True: Input should be a valid integer"),
        ("slo.ttft_ms=true", "slo.ttft_ms: given True: Input should be a valid number"),
        ("routing.poll_interval_s=inf", "routing.poll_interval_s: given inf, expected a finite number"),
        (
            "model.kv_heads=5",
            "model.kv_heads: given 5, but 32 heads share KV heads in equal groups; allowed: 1, 2, 4, 8",
        ),
        ("trace=csv_file trace.path=/", "trace.path: given '/', which is a folder; expected a file"),
        ("trace=csv_file trace.path=/dev/null", "trace.path: given '/dev/null', which is no regular file"),
        ("report_slo.ttft_ms=-1", "report_slo.ttft_ms: given -1: Input should be greater than 0"),
        ("report_slo.ttft_ms=500,600", "report_slo.ttft_ms: given 500,600, expected one value"),
        ("price.dram_usd_per_gb.value=-3", "price.dram_usd_per_gb.value: given -3, expected 0 or more"),
        ("price.gpu_usd_per_hour.a40.value=-3", "price.gpu_usd_per_hour.a40.value: given -3, expected 0 or more"),
        ("claims.papers=3", "claims.papers: given 3"),
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
        ({"a": 1, 3: 4}, "--config: unknown key 3; allowed: study, set"),
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


def test_a_trace_is_the_same_by_every_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.csv").write_text((ROOT / "tests/data/requests_small.csv").read_text())
    (tmp_path / "link.csv").symlink_to("mine.csv")
    monkeypatch.chdir(tmp_path)
    columns = "trace=csv_file trace.input_column=input trace.output_column=output"
    keys = {
        _plan(f"{columns} trace.path={path}").aggregate.key
        for path in ("mine.csv", "./mine.csv", tmp_path / "mine.csv", "link.csv")
    }
    assert len(keys) == 1


def test_the_data_folder_is_named_where_it_is_at_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVPLAN_DATA", "/nonexistent")
    with pytest.raises(InputError, match="KVPLAN_DATA: given '/nonexistent', expected a folder"):
        _plan()
    monkeypatch.setenv("KVPLAN_DATA", str(tmp_path))
    with pytest.raises(InputError) as caught:
        _plan(study="default")
    assert str(caught.value).startswith(
        f"KVPLAN_DATA: given '{tmp_path.resolve()}', which has no traces/mooncake_conversation.jsonl.gz (trace.path)"
    )


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
    assert sorted(item.label for item in before.items["replay"].values()) == ["a interpolation", "b interpolation"]
    assert len(_plan(f"fidelity.cases={tmp_path / 'a'}", "fidelity").keys("replay")) == 1
    (tmp_path / "a" / "meta.json").write_text("[]")
    assert _changed(before, _plan(f"fidelity.cases={tmp_path}", "fidelity")) == {"replay": 1}


def test_another_predictor_is_another_replay(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text("{}")

    def replays(text: str) -> dict[str, str]:
        items = _plan(f"fidelity.cases={tmp_path} {text}", "fidelity").items["replay"]
        return {item.label.removeprefix(f"{tmp_path.name} "): key for key, item in items.items()}

    every = replays("predictor=random_forest,extra_trees,interpolation,roofline")
    assert len(set(every.values())) == 4
    assert replays("").items() == {("interpolation", every["interpolation"])}
    for text in ("predictor=random_forest predictor.trees=7", "predictor=random_forest predictor.held_out_ratio=0.3"):
        assert replays(text)["random_forest"] != every["random_forest"]


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
