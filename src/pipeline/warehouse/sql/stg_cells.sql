-- One row per simulation: its options, what else its grid varied, and under which ids it is compared.
-- tiers: tier sizes, followed by what the grid varied inside them
-- eviction: eviction policy, followed by what the grid varied inside it
-- placement: placement, followed by what the grid varied inside it
-- prefetch: prefetcher, followed by what the grid varied inside it
-- routing: router, followed by what the grid varied inside it
-- setting: what the grid varied besides options and seed, as text; a value that is the same in all cells is not varied
-- compared: what a comparison varies: routing in the route stage; eviction in the place stage, followed by placement and prefetch where the grid varied them
-- is_reference: whether it is what others are compared with, if that is in the same context
-- compared_values_count: values that the configuration of this option sets: the fewer, the simpler it is to run
-- config_id: equal for simulations that differ in the seed alone
-- context_id: equal for simulations that differ in the compared option and the seed alone
-- workload_id: equal for simulations that differ in the compared option, the seed and, when placing, the tiers
-- tensor_parallel: ranks of an instance; null where the configuration does not say
-- calibration_source: silicon_interpolated, measured, scaled (from which hardware) or datasheet
with entries as (
    select study, stage, cell_id, unnest(map_entries(cast(cast(axes as json) as map(varchar, json)))) as axis
    from cells
),
valued as (
    select study, stage, cell_id, axis.key as key, coalesce(axis.value ->> '$', 'null') as value
    from entries
    where axis.key not in (
        'study', 'stage', 'model', 'hardware', 'predictor', 'engine', 'trace', 'tiers', 'eviction', 'placement',
        'prefetch', 'routing', 'cluster', 'slo', 'seed'
    )
),
sized as (
    select study, stage, count(*) as cell_count
    from cells
    group by all
),
varied as (
    select v.study, v.stage, v.key
    from valued as v inner join sized as s using (study, stage)
    group by v.study, v.stage, v.key, s.cell_count
    having count(distinct v.value) > 1 or count(*) < s.cell_count
),
texts as (
    select
        study, cell_id, split_part(key, '.', 1) as part,
        case
            when not regexp_matches(key, '^tiers\.(hbm_kv|dram|ssd)_bytes$') or try_cast(value as double) is null
                then key || '=' || value
            when cast(value as double) >= 1e12
                then format('{}={:.12g}TB', regexp_extract(key, '([a-z]+)_', 1), cast(value as double) / 1e12)
            else format('{}={:.12g}GB', regexp_extract(key, '([a-z]+)_', 1), cast(value as double) / 1e9)
        end as text
    from valued inner join varied using (study, stage, key)
),
joined as (
    select
        study, cell_id,
        string_agg(text, ' ' order by text) filter (part = 'tiers') as tiers_text,
        string_agg(text, ' ' order by text) filter (part = 'eviction') as eviction_text,
        string_agg(text, ' ' order by text) filter (part = 'placement') as placement_text,
        string_agg(text, ' ' order by text) filter (part = 'prefetch') as prefetch_text,
        string_agg(text, ' ' order by text) filter (part = 'routing') as routing_text,
        string_agg(text, ' ' order by text)
            filter (part not in ('tiers', 'eviction', 'placement', 'prefetch', 'routing')) as setting
    from texts
    group by all
),
named as (
    select
        c.* replace (
            concat_ws(' ', c.tiers, j.tiers_text) as tiers,
            concat_ws(' ', c.eviction, j.eviction_text) as eviction,
            concat_ws(' ', c.placement, j.placement_text) as placement,
            concat_ws(' ', c.prefetch, j.prefetch_text) as prefetch,
            concat_ws(' ', c.routing, j.routing_text) as routing
        ),
        coalesce(j.setting, '') as setting,
        try_cast(c.config as json) as parsed
    from cells as c left join joined as j using (study, cell_id)
),
told as (
    select
        *,
        if(count(distinct placement) over (partition by study, stage) > 1, placement, null) as placement_varied,
        if(count(distinct prefetch) over (partition by study, stage) > 1, 'prefetch ' || prefetch, null)
            as prefetch_varied
    from named
),
split as (
    select
        t.*,
        if(stage = 'place', concat_ws(' ', t.eviction, placement_varied, prefetch_varied), t.routing) as compared,
        if(
            stage = 'place',
            t.eviction = p.eviction and (placement_varied is null or split_part(t.placement, ' ', 1) = p.placement)
            and (prefetch_varied is null or split_part(t.prefetch, ' ', 1) = p.prefetch),
            t.routing = p.routing
        ) as is_reference,
        if(stage = 'place', [t.routing], [t.eviction, t.placement, t.prefetch]) as other,
        [t.study, stage, model, hardware, predictor, engine, trace, cluster, slo, setting] as common
    from told as t left join report_reference as p using (study)
)
select
    study, cell_id, stage, model, hardware, predictor, engine, trace, tiers, eviction, placement, prefetch, routing, cluster, slo,
    setting, seed, compared, is_reference,
    len(if(stage = 'place', json_keys(parsed, '$.eviction'), json_keys(parsed, '$.routing'))) - 1
        as compared_values_count,
    md5(cast(to_json(list_concat(common, other, [tiers, compared])) as varchar)) as config_id,
    md5(cast(to_json(list_concat(common, other, [tiers])) as varchar)) as context_id,
    md5(cast(to_json(list_concat(common, other, [if(stage = 'place', '', tiers)])) as varchar)) as workload_id,
    try_cast(parsed ->> '$.engine.tensor_parallel' as bigint) as tensor_parallel,
    config,
    if(
        calibration_source = 'scaled',
        concat_ws(' from ', 'scaled', parsed ->> '$.hardware.source.reference.name'),
        calibration_source
    ) as calibration_source,
    is_calibrated, has_prefixes, capacity_per_s, offered_per_s, arrived_per_s, measured_s, is_settled, makespan_s,
    mean_running_count, p90_running_count, extrapolated_time_ratio, zero_reuse_hit_ratio, infinite_cache_hit_ratio
from split
