-- Every row about a simulation names one that stands in cells.
with named as (
    select distinct study, 'requests' as table_name, cell_id from requests
    union all select distinct study, 'tier_usage', cell_id from tier_usage
    union all select distinct study, 'transfers', cell_id from transfers
    union all select distinct study, 'routing_decisions', cell_id from routing_decisions
    union all select distinct study, 'timeline', cell_id from timeline
    union all select distinct study, 'provenance', cell_id from provenance
)
select n.*
from named as n anti join cells as c using (study, cell_id)
order by all
