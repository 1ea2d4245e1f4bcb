-- One row per simulation: what its requests experienced.
-- request_count: requests that arrived
-- completed_count: requests served to the last token
-- rejected_count: requests rejected
-- goodput_per_s: requests that met the SLO, over the makespan [per_s]
-- slo_attainment_ratio: requests that met the SLO, over those that arrived [ratio]
-- ttft_p50_ms: TTFT, 50th percentile over completed requests [ms]
-- ttft_p90_ms: TTFT, 90th percentile over completed requests [ms]
-- ttft_p99_ms: TTFT, 99th percentile over completed requests [ms]
-- tpot_p50_ms: TPOT, 50th percentile over completed requests [ms]
-- tpot_p99_ms: TPOT, 99th percentile over completed requests [ms]
-- max_itl_p99_ms: largest gap between tokens, 99th percentile over completed requests [ms]
-- hit_ratio: prompt tokens found in a tier, over prompt tokens, completed requests [ratio]
-- recomputed_tokens: prompt tokens computed, completed requests [tokens]
-- output_tokens_per_s: output tokens of completed requests, over the makespan [tokens_per_s]
with measured as (
    select
        study, cell_id,
        count(*) as request_count,
        count(*) filter (is_completed) as completed_count,
        count(*) filter (rejection is not null) as rejected_count,
        count(*) filter (meets_slo) as met_count,
        quantile_cont(ttft_ms, [0.5, 0.9, 0.99]) filter (is_completed) as ttft_ms,
        quantile_cont(tpot_ms, [0.5, 0.99]) filter (is_completed) as tpot_ms,
        quantile_cont(max_itl_ms, 0.99) filter (is_completed) as max_itl_p99_ms,
        sum(input_tokens) filter (is_completed) as input_tokens,
        sum(hbm_tokens + dram_tokens + ssd_tokens + remote_tokens) filter (is_completed) as hit_tokens,
        sum(recomputed_tokens) filter (is_completed) as recomputed_tokens,
        sum(output_tokens) filter (is_completed) as output_tokens
    from stg_requests
    group by study, cell_id
)
select
    c.* exclude (config),
    coalesce(m.request_count, 0) as request_count,
    coalesce(m.completed_count, 0) as completed_count,
    coalesce(m.rejected_count, 0) as rejected_count,
    coalesce(m.met_count, 0) / nullif(c.makespan_s, 0) as goodput_per_s,
    m.met_count / m.request_count as slo_attainment_ratio,
    m.ttft_ms[1] as ttft_p50_ms, m.ttft_ms[2] as ttft_p90_ms, m.ttft_ms[3] as ttft_p99_ms,
    m.tpot_ms[1] as tpot_p50_ms, m.tpot_ms[2] as tpot_p99_ms,
    m.max_itl_p99_ms,
    m.hit_tokens / nullif(m.input_tokens, 0) as hit_ratio,
    cast(coalesce(m.recomputed_tokens, 0) as bigint) as recomputed_tokens,
    coalesce(m.output_tokens, 0) / nullif(c.makespan_s, 0) as output_tokens_per_s,
    k.hbm_bytes, k.dram_bytes, k.ssd_bytes, k.remote_bytes, k.instance_count
from stg_cells as c
left join measured as m using (study, cell_id)
left join stg_capacity as k using (study, cell_id)
