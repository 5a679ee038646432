"""Print the rows of `mezzo/onnx/schema/contrib.py` from the schemas that the installed ONNX Runtime registers: those
of its own domain, and those that it adds to ONNX's.

Run it when a new ONNX Runtime adds operators, and paste the rows.
"""

import re
import sys
from typing import Any

import onnx.defs
from onnxruntime.capi import onnxruntime_pybind11_state as state


def main() -> None:
    schemas = [schema for schema in state.get_all_operator_schema() if _is_contributed(schema)]
    for schema in sorted(schemas, key=lambda s: (s.domain, s.name)):
        ports = [
            " ".join(port.typeStr + ("*" if "Variadic" in str(port.option) else "") for port in group)
            for group in (schema.inputs, schema.outputs)
        ]
        types = "; ".join(
            f"{c.type_param_str}: "
            + " ".join(sorted(re.sub(r"^tensor\((.*)\)$", r"\1", t) for t in c.allowed_type_strs))
            for c in schema.type_constraints
        )
        sys.stdout.write(f'    ("{schema.domain}", "{schema.name}"): _row("{ports[0]}", "{ports[1]}", "{types}"),\n')


def _is_contributed(schema: Any) -> bool:
    """Whether a schema is ONNX Runtime's own. In ONNX's domain those have version 1; a second one only deprecates."""
    if schema.domain:
        return bool(schema.domain == "com.microsoft")
    return bool(schema.since_version == 1) and not onnx.defs.has(schema.name, 1, "")


if __name__ == "__main__":
    main()
