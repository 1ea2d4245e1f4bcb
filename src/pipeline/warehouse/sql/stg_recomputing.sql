-- One row per simulation that has a tier below HBM and loads from it: the one like it that computes such blocks again.
-- recomputing_cell_id: same traffic, rate and configuration, but always_recompute without prefetch, else HBM alone
with settled as (
    select
        c.study, c.cell_id, c.offered_per_s, k.dram_bytes + k.ssd_bytes + k.remote_bytes as lower_bytes,
        c.config ->> '$.placement.load_or_recompute' is not distinct from 'always_recompute'
        and coalesce(c.config ->> '$.prefetch.name', 'none') = 'none' as recomputes,
        json_merge_patch(
            c.config,
            '{"placement": {"load_or_recompute": null, "least_load_tokens": null, "delay_weight": null,
              "deadline_s": null}, "prefetch": null}'
        ) as same_tiers,
        json_merge_patch(c.config, '{"placement": null, "tiers": null, "prefetch": null}') as other_tiers
    from (select study, cell_id, offered_per_s, try_cast(config as json) as config from cells) as c
    inner join stg_capacity as k using (study, cell_id)
)
select
    a.study, a.cell_id,
    coalesce(
        min(b.cell_id) filter (b.recomputes and a.same_tiers = b.same_tiers),
        min(b.cell_id) filter (b.lower_bytes = 0)
    ) as recomputing_cell_id
from settled as a inner join settled as b
    on a.study = b.study and a.other_tiers = b.other_tiers and a.offered_per_s = b.offered_per_s
where a.lower_bytes > 0 and not a.recomputes
group by all
having recomputing_cell_id is not null
