"""Views and data movement of decompositions."""

from collections.abc import Mapping

from mezzo.tables.facts import Cost, OpFacts, Transfer, facts

SOURCE = "PyTorch 2.13 torch/_prims/__init__.py and torch/_inductor/inductor_prims.py"

FACTS: tuple[OpFacts, ...] = (
    # Places within windows become places within the input: integers only.
    facts("_low_memory_max_pool_offsets_to_indices", Cost.MOVEMENT, like="MaxPool"),
    facts(
        "as_strided_scatter",
        Cost.MOVEMENT,
        like="ScatterElements",
        keeps_values=True,
        transfer=Transfer.JOIN,
    ),
    facts(
        "copy_strided", Cost.MOVEMENT, like="Identity", keeps_values=True, transfer=Transfer.KEEP
    ),
    facts("imag", Cost.MOVEMENT, like="Identity", keeps_values=True, transfer=Transfer.MOVE),
    facts("real", Cost.MOVEMENT, like="Identity", keeps_values=True, transfer=Transfer.MOVE),
)

# Operators with all facts of the ONNX operator named.
EQUIVALENTS: Mapping[str, str] = {
    "as_strided": "Slice",
    "broadcast_in_dim": "Expand",
    "cat": "Concat",
    "clone": "Identity",
    "collapse": "Reshape",
    "collapse_view": "Reshape",
    "device_put": "Identity",
    "inductor_force_stride_order": "Identity",
    "reshape": "Reshape",
    "rev": "Slice",
    "split_dim": "Reshape",
    "squeeze": "Squeeze",
    "transpose": "Transpose",
    "view_of": "Identity",
    "where": "Where",
}
