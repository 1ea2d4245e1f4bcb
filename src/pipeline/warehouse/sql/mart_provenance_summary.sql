-- One row per study and distinct input of its simulations.
-- cell_count: simulations that rest on it
select study, input, name, value, as_of, measured_by, count(distinct cell_id) as cell_count
from provenance
group by all
order by all
