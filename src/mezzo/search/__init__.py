"""What tuning, sensitivity and repair share: a bench, goals, measured costs, a search inside a budget."""
