"""Folders of models, as model hubs keep them: every model of a folder converted together, and the folder kept whole."""
