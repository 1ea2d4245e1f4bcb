-- Axes and configuration of a simulation are JSON objects.
select study, cell_id, axes
from cells
where
    coalesce(if(json_valid(axes), json_type(axes), null), '') <> 'OBJECT'
    or coalesce(if(json_valid(config), json_type(config), null), '') <> 'OBJECT'
