-- One row per study and trace: rows read, kept, dropped and changed, mean over the times that it was loaded.
-- load_count: times that it was read or generated: once per seed, those of tuning included
-- read_rows: rows in the file, or requests generated; null where nothing was read
-- kept_rows: rows simulated
-- other_rows: rows dropped or changed, by reason (JSON)
-- is_real: true if it was read from a file, false if it was generated
with reasons as (
    select
        study, trace, path, reason, sum(row_count) as row_count,
        max(count(*)) over (partition by study, trace, path) as load_count
    from trace_quality
    group by study, trace, path, reason
),
means as (
    select * replace (cast(round(row_count / load_count) as bigint) as row_count)
    from reasons
)
select
    study, trace, path, load_count,
    max(row_count) filter (reason = 'read') as read_rows,
    coalesce(max(row_count) filter (reason = 'kept'), 0) as kept_rows,
    coalesce(cast(to_json(map_from_entries(
        list((reason, row_count) order by reason) filter (reason not in ('read', 'kept'))
    )) as varchar), '{}') as other_rows,
    path <> 'generated' as is_real
from means
group by study, trace, path, load_count
order by all
