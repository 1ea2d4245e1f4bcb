-- Attainment of $routing less that of $reference in study $study, mean over traces, then over seeds common to all.
with gains as (
    select m.trace, m.seed, avg(m.slo_attainment_ratio - r.slo_attainment_ratio) as gain_ratio
    from cell_metrics as m
    inner join cell_metrics as r
        on r.context_id = m.context_id and r.seed = m.seed and r.compared = $reference
    where m.study = $study and m.stage = 'route' and m.compared = $routing
    group by m.trace, m.seed
),
by_seed as (
    select seed, avg(gain_ratio) as gain_ratio
    from gains
    group by seed
    having count(*) = (select count(distinct trace) from gains)
),
total as (
    select
        count(*) as seed_count, avg(gain_ratio) as gain_ratio,
        stddev_samp(gain_ratio) / sqrt(count(*)) as error_ratio
    from by_seed
)
select
    (select count(distinct trace) from gains) as trace_count,
    total.seed_count, total.gain_ratio, t.quantile * total.error_ratio as half_width_ratio
from total
left join student_t as t on t.sample_count = least(total.seed_count, 100) and t.comparison_count = 1
