-- One row per configuration and tier: TTFT of exactly the requests it was the slowest tier to serve, seeds pooled.
-- served_tier: hbm, dram, ssd, remote, or recompute for requests that no tier gave anything
-- request_count: completed requests of the measured windows that this tier served
-- request_ratio: their share of the completed requests [ratio]
-- token_ratio: share of all prompt tokens that this tier gave, whichever tier the request counts under [ratio]
-- ttft_p50_ms: TTFT, 50th percentile of these requests; longer prompts and slower tiers are not told apart [ms]
-- ttft_p90_ms: TTFT, 90th percentile of these requests [ms]
-- ttft_p99_ms: TTFT, 99th percentile of these requests [ms]
-- paired_request_count: those that were completed where they are computed again, too, see stg_recomputing
-- recompute_ttft_p50_ms: TTFT of these pairs where they are computed again, 50th percentile [ms]
-- ttft_saved_ms: TTFT computed again less TTFT, mean over the pairs; less than 0: the tier made it longer [ms]
-- slower_ratio: share of the pairs that the tier made slower [ratio]
with paired as (
    select
        c.config_id, r.served_tier, count(*) as paired_request_count,
        quantile_cont(o.ttft_ms, 0.5) as recompute_ttft_p50_ms,
        avg(o.ttft_ms - r.ttft_ms) as ttft_saved_ms, avg(if(r.ttft_ms > o.ttft_ms, 1, 0)) as slower_ratio
    from stg_requests as r
    inner join stg_cells as c using (study, cell_id)
    inner join stg_recomputing as p using (study, cell_id)
    inner join stg_requests as o
        on o.study = r.study and o.cell_id = p.recomputing_cell_id and o.request_id = r.request_id
    where r.is_completed and r.is_measured and o.is_completed
    group by c.config_id, r.served_tier
),
served as (
    select
        c.config_id, r.served_tier,
        count(*) as request_count,
        quantile_cont(r.ttft_ms, [0.5, 0.9, 0.99]) as ttft_ms,
        sum(r.input_tokens) as input_tokens, sum(r.hbm_tokens) as hbm_tokens, sum(r.dram_tokens) as dram_tokens,
        sum(r.ssd_tokens) as ssd_tokens, sum(r.remote_tokens) as remote_tokens,
        sum(r.recomputed_tokens) as recomputed_tokens
    from stg_requests as r inner join stg_cells as c using (study, cell_id)
    where r.is_completed and r.is_measured
    group by c.config_id, r.served_tier
),
total as (
    select
        config_id, sum(request_count) as request_count, sum(input_tokens) as input_tokens,
        unnest(['hbm', 'dram', 'ssd', 'remote', 'recompute']) as served_tier,
        unnest([sum(hbm_tokens), sum(dram_tokens), sum(ssd_tokens), sum(remote_tokens), sum(recomputed_tokens)])
            as tier_tokens
    from served
    group by config_id
)
select
    k.study, k.stage, k.model, k.hardware, k.trace, k.tiers, k.eviction, k.placement, k.prefetch, k.routing, k.cluster, k.setting,
    t.served_tier,
    coalesce(s.request_count, 0) as request_count,
    coalesce(s.request_count, 0) / t.request_count as request_ratio,
    t.tier_tokens / t.input_tokens as token_ratio,
    s.ttft_ms[1] as ttft_p50_ms, s.ttft_ms[2] as ttft_p90_ms, s.ttft_ms[3] as ttft_p99_ms,
    coalesce(p.paired_request_count, 0) as paired_request_count, p.recompute_ttft_p50_ms, p.ttft_saved_ms,
    p.slower_ratio,
    k.is_calibrated, k.config_id, k.workload_id
from total as t
inner join ranking as k using (config_id)
left join served as s using (config_id, served_tier)
left join paired as p using (config_id, served_tier)
where s.request_count > 0 or t.tier_tokens > 0
order by
    k.study, k.workload_id, k.config_id,
    list_position(['hbm', 'dram', 'ssd', 'remote', 'recompute'], t.served_tier)
