"""From a graph and what the user asks for to an assignment, its reasons and the edits that realise it. Knows no IR."""
