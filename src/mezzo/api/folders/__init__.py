"""Conversion of folders of models in the layouts of model hubs.

Imports: those of `api`. A new kind of folder is one file next to `genai.py`.
"""
