-- One row per configuration (all seeds of it): means over seeds, 95 % intervals, paired difference to the reference.
-- seed_count: simulations behind the row, one per seed
-- outcome_count: different outcomes among them; 1 where the seed varies nothing, and then there is no interval
-- goodput_per_s: requests that met the SLO per second, mean over seeds [per_s]
-- goodput_low_per_s: 95 % interval across seeds; null for a single outcome [per_s]
-- goodput_high_per_s: 95 % interval across seeds; null for a single outcome [per_s]
-- slo_attainment_ratio: requests that met the SLO over those that arrived, mean over seeds [ratio]
-- attainment_low_ratio: 95 % interval across seeds; null for a single outcome [ratio]
-- attainment_high_ratio: 95 % interval across seeds; null for a single outcome [ratio]
-- ttft_p50_ms: TTFT, 50th percentile of a simulation, mean over seeds [ms]
-- ttft_p99_ms: TTFT, 99th percentile of a simulation, mean over seeds [ms]
-- ttft_p99_low_ms: 95 % interval across seeds; null for a single outcome [ms]
-- ttft_p99_high_ms: 95 % interval across seeds; null for a single outcome [ms]
-- tpot_p50_ms: TPOT, 50th percentile of a simulation, mean over seeds [ms]
-- tpot_p99_ms: TPOT, 99th percentile of a simulation, mean over seeds [ms]
-- max_itl_p99_ms: largest gap between tokens, 99th percentile of a simulation, mean over seeds [ms]
-- hit_ratio: prompt tokens found in a tier over prompt tokens, mean over seeds [ratio]
-- recomputed_tokens: prompt tokens computed, mean over seeds [tokens]
-- request_count: requests that arrived in the measured windows, over all seeds
-- rejected_count: those rejected, over all seeds
-- output_tokens_per_s: output tokens per second, mean over seeds [tokens_per_s]
-- mean_running_count: achieved batch: running requests, mean over time and seeds
-- extrapolated_time_ratio: share of step time outside the profiled range, mean over seeds [ratio]
-- is_settled: false if the warm-up of any simulation behind the row is shorter than its sessions
-- is_calibrated: false if any simulation behind the row rests on datasheet figures alone
-- calibration_source: where the step times come from; several are joined by a comma
-- reference: what the compared option is compared with
-- reference_goodput_per_s: goodput of the reference on the common seeds [per_s]
-- common_seed_count: seeds that both have
-- option_count: options compared in this context
-- difference_per_s: goodput less that of the reference, mean over common seeds [per_s]
-- difference_low_per_s: 95 % interval of the difference, widened (Bonferroni) for the options compared [per_s]
-- difference_high_per_s: 95 % interval of the difference, widened (Bonferroni) for the options compared [per_s]
-- verdict: reference, better, worse, equal (within the equivalence ratio), not shown, too few seeds or no reference
with paired as (
    select
        m.*, p.equivalence_ratio,
        if(m.stage = 'place', p.eviction, p.routing) as reference,
        r.goodput_per_s as reference_goodput_per_s,
        if(r.goodput_per_s is null, null, m.goodput_per_s - r.goodput_per_s) as difference_per_s
    from cell_metrics as m
    inner join report_reference as p using (study)
    left join cell_metrics as r
        on r.context_id = m.context_id and r.seed = m.seed
        and r.compared = if(m.stage = 'place', p.eviction, p.routing)
),
grouped as (
    select
        study, stage, model, hardware, predictor, engine, trace, tiers, eviction, placement, routing, cluster, slo,
        setting, compared, config_id, context_id, workload_id, reference, equivalence_ratio,
        count(*) as seed_count,
        count(distinct (goodput_per_s, ttft_p50_ms, ttft_p99_ms, hit_ratio)) as outcome_count,
        avg(goodput_per_s) as goodput_per_s,
        stddev_samp(goodput_per_s) / sqrt(count(*)) as goodput_error_per_s,
        avg(slo_attainment_ratio) as slo_attainment_ratio,
        stddev_samp(slo_attainment_ratio) / sqrt(count(*)) as attainment_error_ratio,
        avg(ttft_p50_ms) as ttft_p50_ms, avg(ttft_p99_ms) as ttft_p99_ms,
        stddev_samp(ttft_p99_ms) / sqrt(count(*)) as ttft_p99_error_ms,
        avg(tpot_p50_ms) as tpot_p50_ms, avg(tpot_p99_ms) as tpot_p99_ms, avg(max_itl_p99_ms) as max_itl_p99_ms,
        avg(hit_ratio) as hit_ratio, avg(recomputed_tokens) as recomputed_tokens,
        cast(sum(request_count) as bigint) as request_count, cast(sum(rejected_count) as bigint) as rejected_count,
        avg(output_tokens_per_s) as output_tokens_per_s, avg(mean_running_count) as mean_running_count,
        avg(extrapolated_time_ratio) as extrapolated_time_ratio,
        avg(zero_reuse_hit_ratio) as zero_reuse_hit_ratio, avg(infinite_cache_hit_ratio) as infinite_cache_hit_ratio,
        bool_and(is_calibrated) as is_calibrated, bool_and(is_settled) as is_settled,
        string_agg(distinct calibration_source, ', ' order by calibration_source) as calibration_source,
        avg(hbm_bytes) as hbm_bytes, avg(dram_bytes) as dram_bytes, avg(ssd_bytes) as ssd_bytes,
        avg(remote_bytes) as remote_bytes, max(instance_count) as instance_count,
        max(tensor_parallel) as tensor_parallel,
        avg(reference_goodput_per_s) as reference_goodput_per_s,
        count(difference_per_s) as common_seed_count,
        avg(difference_per_s) as difference_per_s,
        stddev_samp(difference_per_s) / sqrt(count(difference_per_s)) as difference_error_per_s
    from paired
    group by all
),
counted as (
    select *, count(*) over (partition by context_id) as option_count
    from grouped
),
bounded as (
    select
        c.*,
        t.quantile as t_one, d.quantile * c.difference_error_per_s as half_width_per_s,
        c.equivalence_ratio * c.reference_goodput_per_s as equal_per_s
    from counted as c
    left join student_t as t
        on t.sample_count = least(c.seed_count, 100) and t.comparison_count = 1 and c.outcome_count > 1
    left join student_t as d
        on d.sample_count = least(c.common_seed_count, 100)
        and d.comparison_count = least(greatest(c.option_count - 1, 1), 50)
        and c.outcome_count > 1
)
select
    study, stage, model, hardware, predictor, engine, trace, tiers, eviction, placement, routing, cluster, slo, setting,
    compared, seed_count, outcome_count, goodput_per_s,
    goodput_per_s - t_one * goodput_error_per_s as goodput_low_per_s,
    goodput_per_s + t_one * goodput_error_per_s as goodput_high_per_s,
    slo_attainment_ratio,
    slo_attainment_ratio - t_one * attainment_error_ratio as attainment_low_ratio,
    slo_attainment_ratio + t_one * attainment_error_ratio as attainment_high_ratio,
    ttft_p50_ms, ttft_p99_ms,
    ttft_p99_ms - t_one * ttft_p99_error_ms as ttft_p99_low_ms,
    ttft_p99_ms + t_one * ttft_p99_error_ms as ttft_p99_high_ms,
    tpot_p50_ms, tpot_p99_ms, max_itl_p99_ms, hit_ratio, recomputed_tokens, request_count, rejected_count,
    output_tokens_per_s, mean_running_count, extrapolated_time_ratio, zero_reuse_hit_ratio, infinite_cache_hit_ratio,
    is_calibrated, is_settled, calibration_source, hbm_bytes, dram_bytes, ssd_bytes, remote_bytes, instance_count, tensor_parallel,
    reference, reference_goodput_per_s, common_seed_count, option_count, difference_per_s,
    difference_per_s - half_width_per_s as difference_low_per_s,
    difference_per_s + half_width_per_s as difference_high_per_s,
    case
        when compared = reference then 'reference'
        when common_seed_count = 0 then 'no reference'
        when common_seed_count = 1 or outcome_count = 1 then 'too few seeds'
        when difference_per_s - half_width_per_s > 0 and difference_per_s > equal_per_s then 'better'
        when difference_per_s + half_width_per_s < 0 and difference_per_s < -equal_per_s then 'worse'
        when abs(difference_per_s) + half_width_per_s <= equal_per_s then 'equal'
        else 'not shown'
    end as verdict,
    config_id, context_id, workload_id
from bounded
