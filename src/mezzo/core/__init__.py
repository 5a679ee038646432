"""The contracts: a graph and its levels, facts, policies, targets, plans, what a strategy is given and gives back."""
