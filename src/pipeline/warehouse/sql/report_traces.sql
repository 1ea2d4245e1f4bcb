-- Rows of the traces
select * exclude (study)
from trace_summary
where study = $study
