-- Load or recompute: when a prefix in a tier is worth loading, by loads at once over its links and batch beside it
select
    hardware, model, predictor, engine, tensor_parallel, max_batched_tokens, block_tokens, tier, sharer_count,
    running_count, verdict,
    bandwidth_bytes_per_s, needed_bytes_per_s, needed_at_tokens, setup_id
from load_verdict
where study = $study
