"""What is read and written as text: plans, policies, targets, and what a model tells of how it was made."""
