-- One row per engine setup x tier x sharers of its links x running batch: when to load a prefix, when to recompute it.
-- verdict: in words; what is compared is the TTFT of the request itself
-- needed_bytes_per_s: least break_even_bytes_per_s of any length; null: no bandwidth is enough [bytes_per_s]
-- needed_at_tokens: length at which it is least [tokens]
with summed as (
    select
        study, setup_id, hardware, model, predictor, engine, tensor_parallel, max_batched_tokens, block_tokens, tier,
        sharer_count, running_count, bandwidth_bytes_per_s, load_from_tokens, load_to_tokens,
        max(prefix_tokens) as longest_tokens,
        min(break_even_bytes_per_s) as needed_bytes_per_s,
        arg_min(prefix_tokens, break_even_bytes_per_s) as needed_at_tokens,
        coalesce(
            bool_or(is_extrapolated) filter (prefix_tokens = load_from_tokens),
            arg_min(is_extrapolated, break_even_bytes_per_s),
            bool_or(is_extrapolated)
        ) as is_extrapolated
    from break_even
    group by all
)
select
    study, hardware, model, predictor, engine, tensor_parallel, max_batched_tokens, block_tokens, tier, sharer_count,
    running_count,
    case
        when load_from_tokens = block_tokens and load_to_tokens = longest_tokens then 'load at any length'
        when load_to_tokens = longest_tokens then format('load from {:,} tokens on', load_from_tokens)
        when load_from_tokens is not null
            then format('load from {:,} to {:,} tokens, recompute others', load_from_tokens, load_to_tokens)
        when needed_bytes_per_s is null
            then 'never load: recompute is faster at any length, whatever the bandwidth'
        else format(
            'never load: recompute is faster at any length; needs {:.3g} GB/s, has {:.3g}',
            needed_bytes_per_s / 1e9, bandwidth_bytes_per_s / 1e9
        )
    end
    || if(is_extrapolated, ' (extrapolated)', '') as verdict,
    load_from_tokens, load_to_tokens, bandwidth_bytes_per_s, needed_bytes_per_s, needed_at_tokens, is_extrapolated,
    setup_id
from summed
order by
    study, hardware, model, predictor, engine, setup_id, list_position(['dram', 'ssd', 'remote'], tier), sharer_count,
    running_count
