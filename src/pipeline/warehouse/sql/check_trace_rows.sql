-- Trace rows read = kept + dropped, where rows were read.
with counted as (
    select
        study, trace, path, seed,
        sum(row_count) filter (reason = 'read') as read_rows,
        coalesce(sum(row_count) filter (reason = 'kept'), 0) as kept_rows,
        coalesce(sum(row_count) filter (starts_with(reason, 'dropped')), 0) as dropped_rows
    from trace_quality
    group by all
)
select * from counted
where read_rows <> kept_rows + dropped_rows
