-- What is recommended, one row per workload
select r.*, p.equivalence_ratio
from recommendation as r inner join report_reference as p using (study)
where r.study = $study
order by r.stage, r.trace, r.hardware, r.model, r.setting, r.workload_id
