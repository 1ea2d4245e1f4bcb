-- served_tier is the slowest tier that gave tokens, and recompute only if none did (completed requests).
select study, cell_id, request_id, served_tier, hbm_tokens, dram_tokens, ssd_tokens, remote_tokens
from requests
where
    status = 'completed'
    and served_tier <> case
        when remote_tokens > 0 then 'remote'
        when ssd_tokens > 0 then 'ssd'
        when dram_tokens > 0 then 'dram'
        when hbm_tokens > 0 then 'hbm'
        else 'recompute'
    end
