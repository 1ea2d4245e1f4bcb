-- No two simulations have the same configuration and seed.
select
    study, config_id, seed,
    count(distinct cell_id) as cell_count, min(cell_id) as first_cell_id, max(cell_id) as last_cell_id
from stg_cells
group by study, config_id, seed
having count(distinct cell_id) > 1
