-- One row per configuration: what its tiers and GPUs cost at the report's prices, and what goodput they give.
-- price: the report's price list; 1 GB = 1e9 bytes
-- hbm_usd: KV capacity of HBM, priced alone [usd]
-- dram_usd: DRAM tier [usd]
-- ssd_usd: SSD tier [usd]
-- tiers_usd: sum of the three over all instances; null where a remote tier, which has no price, is used [usd]
-- gpu_count: GPUs of all instances; null where the ranks are not known
-- gpu_usd_per_hour: rent of the GPUs; null where the price list lacks the hardware [usd_per_hour]
-- gpu_usd_per_million_output_tokens: rent over output tokens, tiers not included [usd]
-- is_on_frontier: no configuration of the same workload costs as little and gives more, by the means over seeds
with prices as (
    select
        study, any_value(price) as price,
        max(usd) filter (item = 'hbm') as hbm_usd_per_gb,
        max(usd) filter (item = 'dram') as dram_usd_per_gb,
        max(usd) filter (item = 'ssd') as ssd_usd_per_gb
    from report_price
    group by study
),
costed as (
    select
        r.*, p.price,
        r.hbm_bytes / 1e9 * p.hbm_usd_per_gb as hbm_usd,
        r.dram_bytes / 1e9 * p.dram_usd_per_gb as dram_usd,
        r.ssd_bytes / 1e9 * p.ssd_usd_per_gb as ssd_usd,
        if(r.remote_bytes > 0, null, hbm_usd + dram_usd + ssd_usd) as tiers_usd,
        r.instance_count * r.tensor_parallel as gpu_count,
        gpu_count * g.usd as gpu_usd_per_hour
    from ranking as r
    left join prices as p using (study)
    left join report_price as g on g.study = r.study and g.item = 'gpu' and g.hardware = r.hardware
)
select
    c.study, c.stage, c.model, c.hardware, c.trace, c.tiers, c.eviction, c.placement, c.prefetch, c.routing, c.cluster, c.setting,
    c.price, c.hbm_bytes, c.dram_bytes, c.ssd_bytes, c.remote_bytes, c.hbm_usd, c.dram_usd, c.ssd_usd, c.tiers_usd,
    c.gpu_count, c.gpu_usd_per_hour,
    c.gpu_usd_per_hour / 3600 / nullif(c.output_tokens_per_s, 0) * 1e6 as gpu_usd_per_million_output_tokens,
    c.goodput_per_s, c.goodput_low_per_s, c.goodput_high_per_s, c.seed_count,
    c.tiers_usd is not null and not exists (
        select 1 from costed as o
        where o.workload_id = c.workload_id and o.tiers_usd <= c.tiers_usd and o.goodput_per_s >= c.goodput_per_s
        and (o.tiers_usd < c.tiers_usd or o.goodput_per_s > c.goodput_per_s)
    ) as is_on_frontier,
    c.is_calibrated, c.config_id, c.workload_id
from costed as c
order by c.study, c.workload_id, c.tiers_usd, c.goodput_per_s desc
