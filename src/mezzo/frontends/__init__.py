"""Front ends: each reads one kind of model into a Graph, and applies a plan to it. Only they know an IR."""
