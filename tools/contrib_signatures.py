"""Print the rows of `mezzo/frontends/onnx/contrib.py` from the schemas that the installed ONNX Runtime registers.

Run it when a new ONNX Runtime adds operators, and paste the rows.
"""

import re
import sys

from onnxruntime.capi import onnxruntime_pybind11_state as state


def main() -> None:
    for schema in sorted(state.get_all_operator_schema(), key=lambda s: (s.domain, s.name)):
        if schema.domain != "com.microsoft" and (schema.domain, schema.name) != ("", "SimplifiedLayerNormalization"):
            continue
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


if __name__ == "__main__":
    main()
