"""Tables: operator facts (`ops/`), policies (`policies/`), targets (`targets/`), and their records.

Imports: `common`, `formats`, `ir`. Files of `ops/`, `policies/` and `targets/` never import each
other. An operator's fact is a row in `ops/DIALECT/FAMILY.py`; a policy or a target is one file.
"""
