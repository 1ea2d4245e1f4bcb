-- What a paired difference shows, given half its interval and the difference that counts as none.
case
    when half_width is null then 'too few seeds'
    when difference - half_width > 0 and difference > equal then 'better'
    when difference + half_width < 0 and difference < -equal then 'worse'
    when abs(difference) + half_width <= equal then 'equal'
    when difference + half_width <= equal then 'no better'
    else 'not shown'
end
