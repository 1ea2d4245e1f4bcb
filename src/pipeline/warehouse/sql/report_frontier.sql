-- Cost of tiers and GPUs against goodput
select
    trace, hardware, tiers, eviction, routing, cluster, setting, price, hbm_usd, dram_usd, ssd_usd, tiers_usd,
    gpu_count, gpu_usd_per_hour, gpu_usd_per_million_output_tokens, goodput_per_s, is_on_frontier
from capacity_frontier
where study = $study
