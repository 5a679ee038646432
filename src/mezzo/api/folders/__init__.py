"""Folders of models, as model hubs keep them: every model converted together, the folder kept whole.

Imports: what `api` may.
A new kind of folder is one file next to `genai.py`.
"""
