-- One row per workload and router of the route stage: means over seeds, spread over instances, rejections.
-- prefill_max_to_mean_ratio: requests of the busiest prefill instance over the mean, mean over seeds [ratio]
-- decode_max_to_mean_ratio: requests of the busiest decode instance over the mean, mean over seeds [ratio]
-- mixed_max_to_mean_ratio: requests of the busiest mixed instance over the mean, mean over seeds [ratio]
-- rejected_by_reason: requests of the measured windows rejected, over all seeds, by reason (JSON)
with spread as (
    select
        c.config_id,
        avg(b.max_to_mean_ratio) filter (b.role = 'prefill') as prefill_max_to_mean_ratio,
        avg(b.max_to_mean_ratio) filter (b.role = 'decode') as decode_max_to_mean_ratio,
        avg(b.max_to_mean_ratio) filter (b.role = 'mixed') as mixed_max_to_mean_ratio
    from stg_balance as b inner join stg_cells as c using (study, cell_id)
    group by c.config_id
),
reasons as (
    select c.config_id, r.rejection, count(*) as rejected_count
    from stg_requests as r inner join stg_cells as c using (study, cell_id)
    where r.rejection is not null and r.is_measured
    group by all
),
rejections as (
    select
        config_id,
        cast(to_json(map_from_entries(list((rejection, rejected_count) order by rejection))) as varchar) as by_reason
    from reasons
    group by config_id
)
select
    r.* exclude (stage, compared),
    s.prefill_max_to_mean_ratio, s.decode_max_to_mean_ratio, s.mixed_max_to_mean_ratio,
    coalesce(j.by_reason, '{}') as rejected_by_reason
from ranking as r
left join spread as s using (config_id)
left join rejections as j using (config_id)
where r.stage = 'route'
order by r.study, r.workload_id, r.goodput_per_s desc, r.routing
