-- One row per workload and tiers: the option that may be recommended there, which is the reference or one shown better.
-- tiers_usd: price of the tiers over all instances [usd]
-- is_recommended: true for the cheapest tiers whose goodput is within the equivalence ratio of the best, by the means
with priced as (
    select r.*, f.tiers_usd, p.equivalence_ratio, coalesce(r.goodput_per_s, 0) as gained_per_s
    from ranking as r
    inner join capacity_frontier as f using (config_id)
    inner join report_reference as p on p.study = r.study
),
eligible as (
    select * from priced
    where verdict in ('reference', 'better', 'no reference')
    or not exists (select 1 from priced as o where o.context_id = priced.context_id and o.verdict = 'reference')
    qualify row_number() over (partition by context_id order by gained_per_s desc, compared) = 1
),
judged as (
    select
        *,
        gained_per_s >= (1 - equivalence_ratio) * max(gained_per_s) over (partition by workload_id) as is_near_best
    from eligible
)
select
    study, stage, tiers, compared, tiers_usd, config_id, context_id, workload_id,
    row_number() over (
        partition by workload_id
        order by is_near_best desc, tiers_usd nulls last, hbm_bytes + dram_bytes + ssd_bytes + remote_bytes,
            gained_per_s desc, tiers
    ) = 1 as is_recommended
from judged
