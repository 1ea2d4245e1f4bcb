-- A simulation stands once in cells.
select study, cell_id, count(*) as row_count
from cells
group by all
having count(*) > 1
