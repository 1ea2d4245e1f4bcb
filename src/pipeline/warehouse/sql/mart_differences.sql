-- One row per two configurations of a workload: their paired difference in goodput over the seeds that both ran.
-- than_config_id: the configuration that config_id is compared with
-- than_goodput_per_s: goodput of than_config_id on the common seeds [per_s]
-- common_seed_count: seeds that both ran
-- outcome_count: different outcomes among the simulations of each of the two, the lesser; 1 gives no interval
-- difference_per_s: goodput of config_id less that of than_config_id, mean over common seeds [per_s]
-- difference_error_per_s: standard error of that mean [per_s]
with outcomes as (
    select
        *,
        count(distinct (goodput_per_s, ttft_p50_ms, ttft_p99_ms, hit_ratio)) over (partition by config_id)
            as outcome_count
    from cell_metrics
)
select
    a.study, a.workload_id, a.config_id, b.config_id as than_config_id,
    avg(b.goodput_per_s) as than_goodput_per_s,
    count(a.goodput_per_s - b.goodput_per_s) as common_seed_count,
    min(least(a.outcome_count, b.outcome_count)) as outcome_count,
    avg(a.goodput_per_s - b.goodput_per_s) as difference_per_s,
    stddev_samp(a.goodput_per_s - b.goodput_per_s) / sqrt(common_seed_count) as difference_error_per_s
from outcomes as a inner join outcomes as b using (workload_id, seed)
group by all
