"""Views and data movement of decompositions."""

from mezzo.tables.facts import Cost, Function, OpFacts, Transfer, facts

SOURCE = "PyTorch 2.13 torch/_prims/__init__.py and torch/_inductor/inductor_prims.py"

FACTS: tuple[OpFacts, ...] = (
    # Places within windows become places within the input: integers only.
    facts("_low_memory_max_pool_offsets_to_indices", Cost.MOVEMENT, like="MaxPool"),
    facts("as_strided", Cost.MOVEMENT, like="Slice", keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "as_strided_scatter",
        Cost.MOVEMENT,
        like="ScatterElements",
        keeps_values=True,
        transfer=Transfer.JOIN,
    ),
    facts(
        "broadcast_in_dim", Cost.MOVEMENT, like="Expand", keeps_values=True, transfer=Transfer.KEEP
    ),
    facts("cat", Cost.MOVEMENT, like="Concat", keeps_values=True, transfer=Transfer.JOIN),
    facts(
        "clone",
        Cost.MOVEMENT,
        like="Identity",
        function=Function.IDENTITY,
        keeps_values=True,
        transfer=Transfer.KEEP,
    ),
    facts("collapse", Cost.MOVEMENT, like="Reshape", keeps_values=True, transfer=Transfer.KEEP),
    facts(
        "collapse_view", Cost.MOVEMENT, like="Reshape", keeps_values=True, transfer=Transfer.KEEP
    ),
    facts(
        "copy_strided", Cost.MOVEMENT, like="Identity", keeps_values=True, transfer=Transfer.KEEP
    ),
    facts(
        "device_put",
        Cost.MOVEMENT,
        like="Identity",
        function=Function.IDENTITY,
        keeps_values=True,
        transfer=Transfer.KEEP,
    ),
    facts("imag", Cost.MOVEMENT, like="Identity", keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "inductor_force_stride_order",
        Cost.MOVEMENT,
        like="Identity",
        function=Function.IDENTITY,
        keeps_values=True,
        transfer=Transfer.KEEP,
    ),
    facts("real", Cost.MOVEMENT, like="Identity", keeps_values=True, transfer=Transfer.MOVE),
    facts("reshape", Cost.MOVEMENT, like="Reshape", keeps_values=True, transfer=Transfer.KEEP),
    facts("rev", Cost.MOVEMENT, like="Slice", keeps_values=True, transfer=Transfer.MOVE),
    facts("split_dim", Cost.MOVEMENT, like="Reshape", keeps_values=True, transfer=Transfer.KEEP),
    facts("squeeze", Cost.MOVEMENT, like="Squeeze", keeps_values=True, transfer=Transfer.KEEP),
    facts("transpose", Cost.MOVEMENT, like="Transpose", keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "view_of",
        Cost.MOVEMENT,
        like="Identity",
        function=Function.IDENTITY,
        keeps_values=True,
        transfer=Transfer.KEEP,
    ),
    facts(
        "where",
        Cost.MOVEMENT,
        like="Where",
        function=Function.SELECT,
        keeps_values=True,
        transfer=Transfer.SELECT,
    ),
)
