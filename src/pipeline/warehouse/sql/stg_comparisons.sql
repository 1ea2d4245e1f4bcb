-- One row per workload: how many differences its intervals hold together for (Bonferroni), whichever is recommended.
-- option_comparison_count: pairs of policies or routers on the same tiers, over all tiers
-- tiers_comparison_count: pairs of tiers
with contexts as (
    select study, workload_id, context_id, count(distinct compared) as option_count
    from stg_cells
    group by all
)
select
    study, workload_id,
    cast(greatest(sum(option_count * (option_count - 1) // 2), 1) as bigint) as option_comparison_count,
    greatest(count(*) * (count(*) - 1) // 2, 1) as tiers_comparison_count
from contexts
group by all
