"""Training: the table is its forest, errors are stated, the same inputs give the same bytes, mistakes are named."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hardware_options import hardware_of, model_of, predictor_of, values_of

from pipeline.hardware.base import calibrate
from pipeline.hardware.silicon import Silicon
from pipeline.predictor.base import Predictor, Trained
from pipeline.predictor.baseline import fit_baseline, terms
from pipeline.predictor.features import OPERATIONS, held_out, samples_of
from pipeline.predictor.fitted import fit
from pipeline.predictor.lookup import look_up_s
from pipeline.predictor.step_table import linear_step_table
from pipeline.predictor.step_time import step_time_s
from pipeline.predictor.tau import TypicalLoad, router_taus, tau_constants
from pipeline.spec import InputError
from pipeline.values import EngineLimits

needs_tables = pytest.mark.skipif(not Silicon.available(), reason="kernel tables need Linux x86-64")
ENGINE = EngineLimits(tensor_parallel=1, max_running=64, max_batched_tokens=2048)
LEARNT = ("random_forest", "extra_trees", "interpolation")


@pytest.fixture(scope="module")
def datasheet() -> pa.Table:
    return calibrate(hardware_of("h100_sxm_datasheet"), model_of("llama3_1_8b"), ENGINE).step_samples


def train(samples: pa.Table, predictor: str = "random_forest", seed: int = 0, engine: EngineLimits = ENGINE) -> Trained:
    return predictor_of(predictor).train(samples, model_of("llama3_1_8b"), engine, seed)


def errors(trained: Trained, split: str) -> dict[str, float]:
    rows = trained.accuracy.to_pylist()
    return {row["operation"]: row["mape_ratio"] for row in rows if row["split"] == split}


def without(samples: pa.Table, operation: str) -> pa.Table:
    return samples.filter(pc.not_equal(samples["operation"], operation))


@pytest.mark.parametrize("name", LEARNT)
def test_the_table_is_its_fit(datasheet: pa.Table, name: str) -> None:
    predictor, table = predictor_of(name), train(datasheet, name).table
    rng = np.random.default_rng(3)
    for operation in ("dense", "logits", "attention_prefill", "attention_decode"):
        samples = samples_of(datasheet, operation)
        fitted = fit(samples, predictor.regressor(0, samples.inputs.shape[1]))
        low, high = samples.inputs.min(axis=0), samples.inputs.max(axis=0)
        drawn = rng.uniform(low, high, (500, len(low)))
        inputs = np.concatenate([samples.inputs, np.rint(drawn) if len(low) == 1 else drawn])
        np.testing.assert_allclose(look_up_s(table, operation, inputs), fitted.time_s(inputs), rtol=1e-9)


@pytest.mark.parametrize("name", [*LEARNT, "roofline"])
def test_accuracy_has_every_operation_and_split(datasheet: pa.Table, name: str) -> None:
    rows = train(datasheet, name).accuracy.to_pylist()
    operations = {"dense", "logits", "attention_prefill", "attention_decode"}
    assert {(r["operation"], r["split"]) for r in rows} == {
        (operation, split) for operation in operations for split in ("train", "held_out", "table")
    }
    for row in rows:
        assert row["predictor"] == name
        if row["split"] == "table":
            assert row["p95_error_ratio"] < 1e-9
        else:
            assert row["against"] == "datasheet"
    counts = {(r["operation"], r["split"]): r["sample_count"] for r in rows}
    whole = len(samples_of(datasheet, "dense").time_s)
    assert counts[("dense", "held_out")] == round(0.2 * whole)
    assert counts[("dense", "train")] + counts[("dense", "held_out")] == whole


def test_the_forest_learns_what_the_baseline_cannot(datasheet: pa.Table) -> None:
    """Every second stair of 64 tokens 30 % dearer: no sum of physical terms has that shape."""
    tokens = datasheet["prefill_tokens"].to_numpy() + datasheet["decode_requests"].to_numpy()
    is_stair = (np.array(datasheet["operation"].to_pylist()) == "dense") & (tokens // 64 % 2 == 1)
    time_s = datasheet["time_s"].to_numpy() * np.where(is_stair, 1.3, 1.0)
    stairs = datasheet.set_column(
        datasheet.schema.get_field_index("time_s"), datasheet.schema.field("time_s"), [time_s]
    )
    assert errors(train(stairs, "roofline"), "held_out")["dense"] > 0.08
    table = train(stairs)
    assert errors(table, "held_out")["dense"] < 0.01
    assert table.table.dense_s[100] / table.table.dense_s[130] == pytest.approx(1.3, rel=0.02)


def test_held_out_rows_are_never_trained_on(datasheet: pa.Table) -> None:
    samples = samples_of(datasheet, "dense")
    held = held_out(len(samples.time_s), 0.2, 0, OPERATIONS.index("dense"))
    spoiled = samples.time_s.copy()
    spoiled[held] *= 100

    def predicted(time_s: np.ndarray) -> np.ndarray:
        regressor = predictor_of("random_forest").regressor(0, 1)
        return fit(samples._replace(time_s=time_s).part(~held), regressor).time_s(samples.inputs)

    np.testing.assert_array_equal(predicted(samples.time_s), predicted(spoiled))


def test_the_same_inputs_give_the_same_bytes_and_another_seed_does_not(datasheet: pa.Table) -> None:
    first, second, other = train(datasheet, seed=1), train(datasheet, seed=1), train(datasheet, seed=2)
    for name, value in first.to_arrays().items():
        assert value.tobytes() == second.to_arrays()[name].tobytes()
    assert first.accuracy.equals(second.accuracy)
    assert not first.accuracy.equals(other.accuracy)


def test_the_roofline_predictor_is_its_baseline(datasheet: pa.Table) -> None:
    table = train(datasheet, "roofline").table
    assert (table.prefill_ratio == 1).all()
    assert (table.decode_ratio == 1).all()


def test_beyond_the_samples_time_goes_on_physically(datasheet: pa.Table) -> None:
    table = train(datasheet).table
    last = table.dense_s.size - 1
    assert last == 2048 + 64
    far, outside = step_time_s(table, 16 * last, 0.0, 0, 0.0, 1)
    assert outside > 0
    flops_s = 2 * 32 * (4096 * 128 * 2 * 40 + 3 * 4096 * 14336) * 16 * last / 9.89e14
    attention_s = 1e-2  # the least of 16 x 2112 tokens of almost no pairs
    assert far == pytest.approx(flops_s, rel=0.02, abs=attention_s)


def test_collectives_are_a_part_of_dense(datasheet: pa.Table) -> None:
    two = ENGINE.model_copy(update={"tensor_parallel": 2})
    samples = calibrate(hardware_of("h100_sxm_datasheet"), model_of("llama3_1_8b"), two).step_samples
    whole, alone = train(samples, engine=two), train(without(samples, "collective"), engine=two)
    row = samples.filter(pc.equal(samples["operation"], "collective")).to_pylist()[511]
    assert row["prefill_tokens"] == 512
    assert whole.table.dense_s[512] - alone.table.dense_s[512] == pytest.approx(row["time_s"], rel=1e-3)
    assert "collective" in errors(whole, "held_out")


def test_without_logits_dense_is_taken_to_hold_them(datasheet: pa.Table) -> None:
    table = train(without(datasheet, "logits")).table
    assert step_time_s(table, 0, 0.0, 64, 64.0, 64)[0] == pytest.approx(
        train(datasheet).table.dense_s[64] + look_up_s(table, "attention_decode", np.array([[64.0, 1.0]]))[0]
    )


def test_what_is_missing_or_too_little_is_named(datasheet: pa.Table) -> None:
    with pytest.raises(InputError, match="no rows of attention_decode for llama3_1_8b"):
        train(without(datasheet, "attention_decode"))
    with pytest.raises(InputError, match="3 rows of dense, expected at least 5"):
        dense = datasheet.filter(pc.equal(datasheet["operation"], "dense"))
        train(pa.concat_tables([without(datasheet, "dense"), dense.slice(0, 3)]))
    with pytest.raises(NotImplementedError):
        Predictor(name="none", held_out_ratio=0.5).regressor(0, 1)


def test_an_engine_of_one_request_trains() -> None:
    one = EngineLimits(tensor_parallel=1, max_running=1, max_batched_tokens=512)
    samples = calibrate(hardware_of("h100_sxm_datasheet"), model_of("llama3_1_8b"), one).step_samples
    table = train(samples, engine=one).table
    weights_s = 2 * 32 * (4096 * 128 * 2 * 40 + 3 * 4096 * 14336) / 3.35e12
    assert step_time_s(table, 0, 0.0, 1, 1000.0, 1)[0] == pytest.approx(
        weights_s + 2 * 4096 * 128256 / 3.35e12 + 131072 * 1000 / 3.35e12, rel=1e-3
    )


def test_baselines_find_coefficients_exactly_and_never_negative() -> None:
    rng = np.random.default_rng(0)
    inputs = np.stack([rng.integers(1, 4096, 200), rng.integers(0, 16384, 200)], axis=1).astype(float)
    exact = np.array([1e-4, 2e-7, 3e-10, 4e-8])
    found = fit_baseline("attention_prefill", inputs, terms("attention_prefill", inputs) @ exact)
    np.testing.assert_allclose(terms("attention_prefill", inputs) @ found, terms("attention_prefill", inputs) @ exact)
    falling = fit_baseline("dense", inputs[:, :1], 1.0 / inputs[:, 0])
    assert (falling >= 0).all()


def test_router_constants_are_a_slope_and_a_share_of_a_step() -> None:
    table = linear_step_table(fixed_s=0.01, per_token_s=1e-4, per_pair_s=1e-8, per_decode_context_s=1e-9)
    load = TypicalLoad(prompt_tokens=1000, running_requests=20, context_tokens=500)
    taus = router_taus(table, load)
    assert taus.prefill_s_per_token == pytest.approx(1e-4 + 1e-8 * (1500**2 - 500**2) / 2 / 1000)
    assert taus.decode_s_per_token == pytest.approx((0.01 + 20e-4 + 20 * 500 * 1e-9) / 20)
    rows = tau_constants(taus, load, "h100_sxm", "llama3_1_8b", 1, "datasheet").to_pylist()
    assert [row["name"] for row in rows] == ["tau_prefill_s_per_token", "tau_decode_s_per_token"]
    assert rows[0]["value"] == taus.prefill_s_per_token


@needs_tables
@pytest.mark.parametrize(
    ("hardware", "model", "ranks"),
    [("h100_sxm", "llama3_1_8b", 1), ("l40s", "qwen2_5_3b", 1), ("h100_sxm", "llama3_1_70b", 4)],
)
def test_on_kernel_tables_it_is_close_to_them_and_to_whole_steps(
    hardware: str, model: str, ranks: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from aiconfigurator_core.sdk import RustForwardPassPerfModel

    from pipeline.hardware.silicon import _write_shape

    engine = EngineLimits(tensor_parallel=ranks, max_running=256, max_batched_tokens=8192)
    samples = calibrate(hardware_of(hardware), model_of(model), engine).step_samples
    trained = predictor_of("random_forest").train(samples, model_of(model), engine, 0)
    assert max(errors(trained, "held_out").values()) < 0.015
    dense_s = trained.table.dense_s[1:]
    assert (dense_s[1:] / dense_s[:-1]).min() > 0.94  # stairs go down by a few percent at most
    folder = tmp_path_factory.mktemp("model")
    _write_shape(folder, model_of(model))
    system = values_of("hardware", hardware)["source"]["system"]
    whole = RustForwardPassPerfModel.from_native(
        {
            "schema_version": 1, "model_name": str(folder), "system_name": system, "backend": "vllm",
            "backend_version": "current", "tp_size": ranks, "pp_size": 1, "attention_dp_size": 1,
        }
    )  # fmt: skip
    differences = [_difference(trained, whole, seed) for seed in range(300)]
    assert np.median(differences) < 0.01
    assert max(differences) < 0.06


def _difference(trained: Trained, whole: object, seed: int) -> float:
    """Relative difference of a random mixed step to the package's own estimate of the whole step."""
    rng = np.random.default_rng(seed)
    prefills, decodes = int(rng.integers(0, 3)), int(rng.integers(1, 192))
    new = int(np.exp(rng.uniform(3, 8)))
    cached = int(rng.integers(0, 16384 - 2 * new)) if prefills else 0
    context = int(rng.integers(64, 2000))
    scheduled = {
        "num_prefill_requests": prefills,
        "sum_prefill_tokens": prefills * new,
        "sum_prefill_kv_tokens": prefills * cached,
        "num_decode_requests": decodes,
        "sum_decode_kv_tokens": decodes * context,
    }
    expected_ms = whole.estimate_forward_pass_time_ms({"version": 1, "scheduled_requests": scheduled})
    pairs = prefills * new * (cached + new / 2)
    ours_s, _ = step_time_s(trained.table, prefills * new, pairs, decodes, float(decodes * context), prefills + decodes)
    return abs(ours_s * 1e3 / expected_ms - 1)
