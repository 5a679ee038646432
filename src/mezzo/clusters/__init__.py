"""Distributed execution on Ray; the only package that imports it, and lazily.

Imports: `conversion` and below.
A new message between driver and worker is a method of `worker.py` and of `worker_pool.py`.
"""
