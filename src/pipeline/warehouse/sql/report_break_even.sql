-- Load or recompute: seconds of both by prefix length, without a batch beside it
select
    hardware, model, predictor, engine, tier, sharer_count, prefix_tokens, load_s, recompute_s, bandwidth_bytes_per_s,
    break_even_bytes_per_s, is_extrapolated, prefix_tokens = load_from_tokens as is_crossing, setup_id
from break_even
where study = $study and running_count = 0
order by
    hardware, model, predictor, engine, setup_id, list_position(['dram', 'ssd', 'remote'], tier), sharer_count,
    prefix_tokens
