-- A request stands once in a simulation.
select study, cell_id, request_id, count(*) as row_count
from requests
group by all
having count(*) > 1
