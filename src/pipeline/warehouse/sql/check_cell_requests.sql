-- Every simulation has requests.
select c.study, c.cell_id
from cells as c anti join requests as r using (study, cell_id)
