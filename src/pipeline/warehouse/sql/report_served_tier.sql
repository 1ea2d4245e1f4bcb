-- TTFT of exactly the requests that each tier served
select
    trace, hardware, tiers, eviction, routing, cluster, setting, served_tier, request_count, request_ratio, token_ratio,
    ttft_p50_ms, ttft_p90_ms, ttft_p99_ms
from served_tier_latency
where study = $study
