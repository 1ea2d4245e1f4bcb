-- What is recommended, one row per workload, with its alternatives from the closest to the worst
with listed as (
    select
        workload_id,
        list(alternatives order by difference_per_s desc) filter (question = 'tiers') as other_tiers,
        list(alternatives order by difference_per_s desc) filter (question <> 'tiers') as other_options
    from alternatives
    group by workload_id
)
select
    r.*, p.equivalence_ratio,
    coalesce(l.other_tiers, []) as other_tiers, coalesce(l.other_options, []) as other_options
from recommendation as r
inner join report_reference as p using (study)
left join listed as l using (workload_id)
where r.study = $study
order by r.stage, r.trace, r.hardware, r.model, r.setting, r.workload_id
