-- TTFT of exactly the requests that each tier served
select
    trace, hardware, tiers, eviction, routing, cluster, setting, served_tier, request_count, request_ratio, token_ratio,
    ttft_p50_ms, ttft_p90_ms, ttft_p99_ms, paired_request_count, recompute_ttft_p50_ms, ttft_saved_ms, slower_ratio
from served_tier_latency
where study = $study
