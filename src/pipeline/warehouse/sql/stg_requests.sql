-- One row per request of a simulation, judged by the reporting SLO of its study.
-- is_completed: whether it was served to its last token
-- rejection: why it was rejected; null if it was not
-- meets_slo: completed, TTFT within the SLO and, but for one-token outputs, TPOT too
select
    r.*,
    r.status = 'completed' as is_completed,
    if(starts_with(r.status, 'rejected:'), substr(r.status, 10), null) as rejection,
    r.status = 'completed'
    and coalesce(r.ttft_ms <= s.ttft_ms, false)
    and coalesce(r.tpot_ms <= s.tpot_ms, true) as meets_slo
from requests as r inner join report_slo as s using (study)
