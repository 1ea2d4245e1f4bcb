-- Prices
select price, item, hardware, usd, unit, source, as_of
from report_price
where study = $study
