-- Published figures beside ours
select
    paper || ', ' || source_label as paper,
    claim_id as claim, statement,
    if(published is null, null, concat_ws(' ', format('{:.6g}', published), nullif(unit, 'ratio'))) as published,
    concat_ws(' ', format('{:.6g}', ours), format('[{:.4g}, {:.4g}]', ci_low, ci_high)) as ours,
    concat(verdict, ' (', kind, ')') as verdict,
    remark,
    ours is not null as is_tested
from claims
where study = $study
order by rowid
