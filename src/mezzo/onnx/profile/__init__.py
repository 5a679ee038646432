"""Profiling of models and their nodes in an installed runtime, in a child process."""
