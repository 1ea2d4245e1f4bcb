-- Provenance: where every input comes from
select * exclude (study)
from provenance_summary
where study = $study
