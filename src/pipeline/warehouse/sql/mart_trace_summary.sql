-- One row per study and trace: rows read, kept, dropped and changed, over the seeds that read it.
-- read_rows: rows in the file; null where nothing was read
-- kept_rows: rows simulated
-- other_rows: rows dropped or changed, by reason (JSON)
-- is_real: true if it was read from a file, false if it was generated
with reasons as (
    select study, trace, path, reason, cast(sum(row_count) as bigint) as row_count
    from trace_quality
    group by all
)
select
    study, trace, path,
    max(row_count) filter (reason = 'read') as read_rows,
    coalesce(max(row_count) filter (reason = 'kept'), 0) as kept_rows,
    coalesce(cast(to_json(map_from_entries(
        list((reason, row_count) order by reason) filter (reason not in ('read', 'kept'))
    )) as varchar), '{}') as other_rows,
    path <> 'generated' as is_real
from reasons
group by study, trace, path
order by all
