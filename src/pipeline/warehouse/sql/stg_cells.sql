-- One row per simulation: its options, what else its grid varied, and under which ids it is compared.
-- eviction: eviction policy, followed by what the grid varied inside it
-- routing: router, followed by what the grid varied inside it
-- setting: what the grid varied besides options and seed, as text
-- compared: the option that a comparison varies: eviction in the place stage, routing in the route stage
-- config_id: equal for simulations that differ in the seed alone
-- context_id: equal for simulations that differ in the compared option and the seed alone
-- workload_id: equal for simulations that differ in the compared option, the seed and, when placing, the tiers
-- tensor_parallel: ranks of an instance; null where the configuration does not say
with varied as (
    select
        study, cell_id,
        list_sort(list_transform(
            list_filter(
                map_entries(cast(cast(axes as json) as map(varchar, json))),
                lambda axis: not list_contains(
                    ['study', 'stage', 'model', 'hardware', 'predictor', 'engine', 'trace', 'tiers', 'eviction',
                     'placement', 'routing', 'cluster', 'slo', 'seed'],
                    axis.key
                )
            ),
            lambda axis: axis.key || '=' || coalesce(axis.value ->> '$', 'null')
        )) as texts
    from cells
),
named as (
    select
        c.* exclude (eviction, routing),
        concat_ws(' ', c.eviction, nullif(array_to_string(
            list_filter(v.texts, lambda text: starts_with(text, 'eviction.')), ' '), '')) as eviction,
        concat_ws(' ', c.routing, nullif(array_to_string(
            list_filter(v.texts, lambda text: starts_with(text, 'routing.')), ' '), '')) as routing,
        array_to_string(list_filter(
            v.texts,
            lambda text: not (starts_with(text, 'eviction.') or starts_with(text, 'routing.'))
        ), ' ') as setting
    from cells as c inner join varied as v using (study, cell_id)
),
split as (
    select
        *,
        if(stage = 'place', eviction, routing) as compared,
        if(stage = 'place', routing, eviction) as other,
        [study, stage, model, hardware, predictor, engine, trace, placement, cluster, slo, setting] as common
    from named
)
select
    study, cell_id, stage, model, hardware, predictor, engine, trace, tiers, eviction, placement, routing, cluster, slo,
    setting, seed, compared,
    md5(cast(to_json(list_concat(common, [other, tiers, compared])) as varchar)) as config_id,
    md5(cast(to_json(list_concat(common, [other, tiers])) as varchar)) as context_id,
    md5(cast(to_json(list_concat(common, [other, if(stage = 'place', '', tiers)])) as varchar)) as workload_id,
    try_cast(try_cast(config as json) ->> '$.engine.tensor_parallel' as bigint) as tensor_parallel,
    config, calibration_source, is_calibrated, capacity_per_s, offered_per_s, arrived_per_s, measured_s, is_settled, makespan_s,
    mean_running_count, p90_running_count, extrapolated_time_ratio, zero_reuse_hit_ratio, infinite_cache_hit_ratio
from split
