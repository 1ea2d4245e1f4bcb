-- Published figures beside ours
select
    claim_id, statement, paper, source_label, kind, published, ours, ci_low, ci_high, seeds, unit, tolerance, verdict,
    remark
from claims
where study = $study
order by list_position(['holds', 'differs', 'cannot be tested'], verdict), paper, claim_id
