-- Tokens found in tiers and tokens recomputed are the prompt of a completed request.
select
    study, cell_id, request_id, input_tokens, hbm_tokens, dram_tokens, ssd_tokens, remote_tokens, recomputed_tokens
from requests
where
    least(hbm_tokens, dram_tokens, ssd_tokens, remote_tokens, recomputed_tokens) < 0
    or (
        status = 'completed'
        and hbm_tokens + dram_tokens + ssd_tokens + remote_tokens + recomputed_tokens <> input_tokens
    )
