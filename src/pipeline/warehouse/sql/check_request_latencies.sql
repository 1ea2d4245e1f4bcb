-- No request gets a token before it arrives, or its last before its first.
select study, cell_id, request_id, arrival_s, ttft_ms, e2el_ms, tpot_ms, max_itl_ms
from requests
where
    ttft_ms < 0 or e2el_ms < ttft_ms - 1e-6 or tpot_ms < 0 or max_itl_ms < tpot_ms * (1 - 1e-9) - 1e-6
    or queue_ms < 0 or onboard_ms < 0 or handoff_ms < 0
