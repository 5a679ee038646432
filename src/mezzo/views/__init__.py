"""A plan as people look at it: in numbers, in islands, as an outline, beside another plan."""
