-- No tier ever holds more than its capacity, nor finds more than is looked up.
select study, cell_id, instance_id, tier, capacity_bytes, mean_used_bytes, peak_used_bytes, lookup_tokens, hit_tokens
from tier_usage
where
    peak_used_bytes > capacity_bytes * (1 + 1e-9) or mean_used_bytes > peak_used_bytes * (1 + 1e-9)
    or hit_tokens > lookup_tokens or least(mean_used_bytes, hit_tokens, evicted_blocks) < 0
