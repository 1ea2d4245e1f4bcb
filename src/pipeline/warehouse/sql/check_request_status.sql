-- Requests arrived = completed (with their latencies) + rejected (with a reason, and not served).
select study, cell_id, request_id, status, ttft_ms, e2el_ms, tpot_ms, output_tokens
from requests
where not (
    (
        status = 'completed' and ttft_ms is not null and e2el_ms is not null
        and (tpot_ms is null) = (output_tokens <= 1)
    )
    or (starts_with(status, 'rejected:') and length(status) > length('rejected:') and e2el_ms is null)
)
