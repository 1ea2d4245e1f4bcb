-- One row per simulation: what the requests of its measured window experienced.
-- request_count: requests that arrived in the measured window
-- completed_count: those served to the last token
-- rejected_count: those rejected
-- goodput_per_s: requests that met the SLO, over the length of the window (the makespan if it has none) [per_s]
-- slo_attainment_ratio: requests that met the SLO, over those that arrived [ratio]
-- ttft_p50_ms: TTFT, 50th percentile over completed requests [ms]
-- ttft_p90_ms: TTFT, 90th percentile over completed requests [ms]
-- ttft_p99_ms: TTFT, 99th percentile over completed requests [ms]
-- tpot_p50_ms: TPOT, 50th percentile over completed requests [ms]
-- tpot_p99_ms: TPOT, 99th percentile over completed requests [ms]
-- max_itl_p99_ms: largest gap between tokens, 99th percentile over completed requests [ms]
-- hit_ratio: prompt tokens found in a tier over prompt tokens, completed requests of the whole simulation [ratio]
-- recomputed_tokens: prompt tokens computed, completed requests of the whole simulation [tokens]
-- output_tokens_per_s: output tokens of completed requests, over the length of the window [tokens_per_s]
with judged as (
    select
        study, cell_id,
        count(*) as request_count,
        count(*) filter (is_completed) as completed_count,
        count(*) filter (rejection is not null) as rejected_count,
        count(*) filter (meets_slo) as met_count,
        quantile_cont(ttft_ms, [0.5, 0.9, 0.99]) filter (is_completed) as ttft_ms,
        quantile_cont(tpot_ms, [0.5, 0.99]) filter (is_completed) as tpot_ms,
        quantile_cont(max_itl_ms, 0.99) filter (is_completed) as max_itl_p99_ms,
        sum(output_tokens) filter (is_completed) as output_tokens
    from stg_requests
    where is_measured
    group by study, cell_id
),
-- hits count over the whole simulation, as the bounds beside them do
served as (
    select
        study, cell_id,
        sum(input_tokens) as input_tokens,
        sum(hbm_tokens + dram_tokens + ssd_tokens + remote_tokens) as hit_tokens,
        sum(recomputed_tokens) as recomputed_tokens
    from stg_requests
    where is_completed
    group by study, cell_id
),
timed as (
    -- where all arrive at once, the window has no length
    select *, if(measured_s > 0, measured_s, nullif(makespan_s, 0)) as judged_s
    from stg_cells
)
select
    c.* exclude (config, judged_s),
    coalesce(m.request_count, 0) as request_count,
    coalesce(m.completed_count, 0) as completed_count,
    coalesce(m.rejected_count, 0) as rejected_count,
    coalesce(m.met_count, 0) / c.judged_s as goodput_per_s,
    m.met_count / m.request_count as slo_attainment_ratio,
    m.ttft_ms[1] as ttft_p50_ms, m.ttft_ms[2] as ttft_p90_ms, m.ttft_ms[3] as ttft_p99_ms,
    m.tpot_ms[1] as tpot_p50_ms, m.tpot_ms[2] as tpot_p99_ms,
    m.max_itl_p99_ms,
    s.hit_tokens / nullif(s.input_tokens, 0) as hit_ratio,
    cast(coalesce(s.recomputed_tokens, 0) as bigint) as recomputed_tokens,
    coalesce(m.output_tokens, 0) / c.judged_s as output_tokens_per_s,
    k.hbm_bytes, k.dram_bytes, k.ssd_bytes, k.remote_bytes, k.instance_count
from timed as c
left join judged as m using (study, cell_id)
left join served as s using (study, cell_id)
left join stg_capacity as k using (study, cell_id)
