-- One row per simulation and role: how evenly the router spread requests over the instances of the pool.
-- pool_count: instances of the role, as configured, else as many as any router of the study ever chose
-- max_to_mean_ratio: requests of the busiest instance over the mean of all, also those never chosen [ratio]
with configured as (
    select study, cell_id, pool.role as role, sum(pool.count) as pool_count
    from (
        select study, cell_id, unnest(json_transform(
            try_cast(config as json), '{"cluster": {"pools": [{"role": "VARCHAR", "count": "BIGINT"}]}}'
        ).cluster.pools) as pool
        from cells
    )
    group by all
),
chosen as (
    select study, cell_id, role, instance_id, count(*) as request_count
    from routing_decisions
    group by all
),
seen as (
    select d.study, c.cluster, d.role, count(distinct d.instance_id) as pool_count
    from chosen as d inner join cells as c using (study, cell_id)
    group by all
),
spread as (
    select study, cell_id, role, max(request_count) as busiest_count, sum(request_count) as request_count
    from chosen
    group by all
)
select
    s.study, s.cell_id, s.role,
    coalesce(p.pool_count, n.pool_count) as pool_count,
    s.busiest_count * coalesce(p.pool_count, n.pool_count) / s.request_count as max_to_mean_ratio
from spread as s
inner join cells as c using (study, cell_id)
inner join seen as n on n.study = s.study and n.cluster = c.cluster and n.role = s.role
left join configured as p on p.study = s.study and p.cell_id = s.cell_id and p.role = s.role
