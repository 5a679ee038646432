"""Diagnosis of an installation: packages, machine, runtimes. Every check that can crash runs in a
child process.
"""
