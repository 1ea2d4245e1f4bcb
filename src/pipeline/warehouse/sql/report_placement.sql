-- Placement: goodput and latency by tiers and eviction policy
select
    trace, hardware, model, setting, tiers, compared as eviction, goodput_per_s, goodput_low_per_s, goodput_high_per_s,
    slo_attainment_ratio, ttft_p50_ms, ttft_p99_ms, ttft_p99_low_ms, ttft_p99_high_ms, tpot_p50_ms, tpot_p99_ms,
    max_itl_p99_ms, hit_ratio, recomputed_tokens, mean_running_count, rejected_count, seed_count, verdict,
    difference_per_s, difference_low_per_s, difference_high_per_s, extrapolated_time_ratio, calibration_source,
    workload_id
from placement_ranking
where study = $study
order by trace, hardware, model, setting, workload_id, hbm_bytes + dram_bytes + ssd_bytes + remote_bytes, tiers, compared
