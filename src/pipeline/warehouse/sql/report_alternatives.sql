-- Alternatives to what is recommended, each held against it on common seeds
select
    c.stage, c.trace, c.hardware, c.cluster, c.setting, a.question, c.tiers, c.compared as recommended, a.alternative,
    a.is_cheaper, a.goodput_per_s, a.difference_per_s, a.difference_low_per_s, a.difference_high_per_s, a.verdict,
    a.comparison_count, a.gain_share_ratio, a.is_runner_up, a.slo_attainment_ratio, a.is_settled
from alternatives as a inner join recommendation as c using (workload_id)
where c.study = $study
order by c.stage, c.trace, c.hardware, c.setting, c.workload_id, a.question desc, a.difference_per_s desc
