"""Language models: from a Hugging Face folder to one that onnxruntime-genai runs.

Imports: those of `api`.
"""
