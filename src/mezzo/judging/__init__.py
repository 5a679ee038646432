"""What verdicts rest on: the data that a model is judged on, and the standards that its answers are held to."""
