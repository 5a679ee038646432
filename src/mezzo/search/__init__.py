"""What tuning, sensitivity and repair share: a rig, goals, measured costs, a search inside a budget."""
