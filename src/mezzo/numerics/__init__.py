"""What a precision costs in accuracy: data, ranges, errors, sensitivity and the search. Knows no IR and no runtime."""
