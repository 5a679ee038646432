"""Work spread over processes and machines by Ray: how models get there, who does what, and what if one dies."""
