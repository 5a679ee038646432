"""The contracts: a graph and its levels, facts, policies, targets, plans, and what a strategy is given and gives back."""
