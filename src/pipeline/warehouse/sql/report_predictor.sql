-- Error of the predicted step times
select * exclude (study, "case")
from predictor_summary
where study = $study and "case" is null
