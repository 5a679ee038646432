"""Tables: operator facts (`ops/`), policies (`policies/`), targets (`targets/`), their records, and
their TOML files (`files/`).

Imports: `common`, `formats`, `ir`. Files of `ops/`, `policies/` and `targets/` never import each
other. An operator's fact is a row in `ops/DIALECT/FAMILY.py`; a policy or a target is one file.
"""
