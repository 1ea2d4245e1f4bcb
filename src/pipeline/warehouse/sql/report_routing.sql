-- Routing: goodput, latency and balance by router
select
    trace, hardware, model, cluster, setting, routing, goodput_per_s, goodput_low_per_s, goodput_high_per_s,
    slo_attainment_ratio, ttft_p50_ms, ttft_p99_ms, ttft_p99_low_ms, ttft_p99_high_ms, tpot_p50_ms, tpot_p99_ms,
    max_itl_p99_ms, prefill_max_to_mean_ratio, decode_max_to_mean_ratio, mixed_max_to_mean_ratio, rejected_by_reason,
    seed_count, verdict, difference_per_s, difference_low_per_s, difference_high_per_s, extrapolated_time_ratio,
    calibration_source, workload_id
from routing_ranking
where study = $study
order by trace, hardware, model, cluster, setting, workload_id, routing
