-- One row per configuration (all seeds of it): means over seeds, 95 % intervals, paired difference to the reference.
-- seed_count: simulations behind the row, one per seed
-- outcome_count: different outcomes among them; 1 where the seed varies nothing, and then there is no interval
-- goodput_per_s: requests that met the SLO per second, mean over seeds [per_s]
-- goodput_low_per_s: 95 % interval across seeds, cut at 0; null for a single outcome [per_s]
-- goodput_high_per_s: 95 % interval across seeds; null for a single outcome [per_s]
-- slo_attainment_ratio: requests that met the SLO over those that arrived, mean over seeds [ratio]
-- attainment_low_ratio: 95 % interval across seeds, cut at 0 and 1; null for a single outcome [ratio]
-- attainment_high_ratio: 95 % interval across seeds, cut at 0 and 1; null for a single outcome [ratio]
-- ttft_p50_ms: TTFT, 50th percentile of a simulation, mean over seeds [ms]
-- ttft_p99_ms: TTFT, 99th percentile of a simulation, mean over seeds [ms]
-- ttft_p99_low_ms: 95 % interval across seeds, cut at 0; null for a single outcome [ms]
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
-- has_prefixes: whether the trace says which prefixes are shared
-- is_settled: false if the warm-up of any simulation behind the row is shorter than its sessions
-- is_calibrated: false if the step times of any simulation behind the row were not measured on its hardware
-- calibration_source: where the step times come from; several are joined by a comma
-- reference: what the compared option is compared with: the first of those that the study names
-- reference_goodput_per_s: goodput of the reference on the common seeds [per_s]
-- common_seed_count: seeds that both have
-- option_count: options compared in this context
-- difference_per_s: goodput less that of the reference, mean over common seeds [per_s]
-- difference_low_per_s: 95 % interval of the difference, widened (Bonferroni) for all pairs of options in the workload, cut where goodput would be negative [per_s]
-- difference_high_per_s: 95 % interval of the difference, widened (Bonferroni) for all pairs of options in the workload [per_s]
-- verdict: reference, better, worse, equal (within the equivalence ratio), no better (at most equal), not shown, too few seeds or no reference
with grouped as (
    select
        m.study, m.stage, m.model, m.hardware, m.predictor, m.engine, m.trace, m.tiers, m.eviction, m.placement, m.prefetch,
        m.routing, m.cluster, m.slo, m.setting, m.compared, m.config_id, m.context_id, m.workload_id,
        coalesce(r.reference, if(m.stage = 'place', p.eviction, p.routing)) as reference, p.equivalence_ratio,
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
        bool_or(has_prefixes) as has_prefixes,
        bool_and(is_calibrated) as is_calibrated, bool_and(is_settled) as is_settled,
        string_agg(distinct calibration_source, ', ' order by calibration_source) as calibration_source,
        avg(hbm_bytes) as hbm_bytes, avg(dram_bytes) as dram_bytes, avg(ssd_bytes) as ssd_bytes,
        avg(remote_bytes) as remote_bytes, max(instance_count) as instance_count,
        max(tensor_parallel) as tensor_parallel, max(compared_values_count) as compared_values_count
    from cell_metrics as m
    inner join report_reference as p using (study)
    left join (
        select context_id, min(compared) as reference from stg_cells where is_reference group by context_id
    ) as r using (context_id)
    group by all
),
counted as (
    select *, count(*) over (partition by context_id) as option_count
    from grouped
),
bounded as (
    select
        c.*,
        t.quantile as t_one,
        coalesce(d.common_seed_count, 0) as common_seed_count,
        d.than_goodput_per_s as reference_goodput_per_s, d.difference_per_s,
        q.quantile * d.difference_error_per_s as half_width_per_s
    from counted as c
    inner join stg_comparisons as f using (workload_id)
    left join counted as r on r.context_id = c.context_id and r.compared = c.reference
    left join differences as d on d.config_id = c.config_id and d.than_config_id = r.config_id
    left join student_t as t
        on t.sample_count = c.seed_count and t.comparison_count = 1 and c.outcome_count > 1
    left join student_t as q
        on q.sample_count = d.common_seed_count and q.comparison_count = f.option_comparison_count
        and d.outcome_count > 1
)
select
    study, stage, model, hardware, predictor, engine, trace, tiers, eviction, placement, prefetch, routing, cluster, slo, setting,
    compared, seed_count, outcome_count, goodput_per_s,
    if(goodput_per_s < t_one * goodput_error_per_s, 0, goodput_per_s - t_one * goodput_error_per_s) as goodput_low_per_s,
    goodput_per_s + t_one * goodput_error_per_s as goodput_high_per_s,
    slo_attainment_ratio,
    if(slo_attainment_ratio < t_one * attainment_error_ratio, 0, slo_attainment_ratio - t_one * attainment_error_ratio) as attainment_low_ratio,
    if(1 - slo_attainment_ratio < t_one * attainment_error_ratio, 1, slo_attainment_ratio + t_one * attainment_error_ratio)
        as attainment_high_ratio,
    ttft_p50_ms, ttft_p99_ms,
    if(ttft_p99_ms < t_one * ttft_p99_error_ms, 0, ttft_p99_ms - t_one * ttft_p99_error_ms) as ttft_p99_low_ms,
    ttft_p99_ms + t_one * ttft_p99_error_ms as ttft_p99_high_ms,
    tpot_p50_ms, tpot_p99_ms, max_itl_p99_ms, hit_ratio, recomputed_tokens, request_count, rejected_count,
    output_tokens_per_s, mean_running_count, extrapolated_time_ratio, zero_reuse_hit_ratio, infinite_cache_hit_ratio,
    has_prefixes, is_calibrated, is_settled, calibration_source, hbm_bytes, dram_bytes, ssd_bytes, remote_bytes,
    instance_count, tensor_parallel, compared_values_count, reference, reference_goodput_per_s, common_seed_count,
    option_count, difference_per_s,
    if(
        reference_goodput_per_s + difference_per_s < half_width_per_s, -reference_goodput_per_s,
        difference_per_s - half_width_per_s
    ) as difference_low_per_s,
    difference_per_s + half_width_per_s as difference_high_per_s,
    case
        when compared = reference then 'reference'
        when common_seed_count = 0 then 'no reference'
        else verdict_of(difference_per_s, half_width_per_s, equivalence_ratio * reference_goodput_per_s)
    end as verdict,
    config_id, context_id, workload_id
from bounded
