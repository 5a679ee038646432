"""Data movement: operators that move, repeat or select elements without arithmetic.

Scatter operators may combine elements at one position, so they do not always keep values.
"""

from mezzo.tables.facts import Cost, Function, OpFacts, Risk, Transfer, facts

SOURCE = (
    "PyTorch 2.13 documentation, torch, indexing, slicing, joining and mutating operations, and"
    " torch.Tensor.view"
)

FACTS: tuple[OpFacts, ...] = (
    facts(
        "_jagged_to_padded_dense_forward",
        Cost.MOVEMENT,
        like="Pad",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts(
        "_padded_dense_to_jagged_forward",
        Cost.MOVEMENT,
        like="Pad",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts(
        "_reshape_alias", Cost.MOVEMENT, like="Reshape", keeps_values=True, transfer=Transfer.KEEP
    ),
    facts(
        "_reshape_copy", Cost.MOVEMENT, like="Reshape", keeps_values=True, transfer=Transfer.KEEP
    ),
    facts(
        "_unsafe_index", Cost.MOVEMENT, like="GatherND", keeps_values=True, transfer=Transfer.MOVE
    ),
    facts("_unsafe_index_put", Cost.MOVEMENT, like="ScatterND", transfer=Transfer.JOIN),
    # Where the mask is false it fills a number in.
    facts(
        "_unsafe_masked_index",
        Cost.MOVEMENT,
        like="GatherND",
        keeps_values=True,
        numbers=("fill",),
        transfer=Transfer.MOVE,
    ),
    # Duplicate indices add up, with one term per duplicate.
    facts(
        "_unsafe_masked_index_put_accumulate",
        Cost.MOVEMENT,
        Risk.SUM,
        like="ScatterND",
        transfer=Transfer.JOIN,
    ),
    facts("_unsafe_view", Cost.MOVEMENT, like="Reshape", keeps_values=True, transfer=Transfer.KEEP),
    facts("adjoint", Cost.MOVEMENT, like="Transpose", keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "alias",
        Cost.MOVEMENT,
        like="Identity",
        function=Function.IDENTITY,
        keeps_values=True,
        transfer=Transfer.KEEP,
    ),
    facts(
        "alias_copy",
        Cost.MOVEMENT,
        like="Identity",
        function=Function.IDENTITY,
        keeps_values=True,
        transfer=Transfer.KEEP,
    ),
    facts("as_strided", Cost.MOVEMENT, like="Slice", keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "as_strided_copy", Cost.MOVEMENT, like="Slice", keeps_values=True, transfer=Transfer.MOVE
    ),
    facts(
        "as_strided_scatter",
        Cost.MOVEMENT,
        like="ScatterElements",
        keeps_values=True,
        transfer=Transfer.JOIN,
    ),
    facts("atleast_1d", Cost.MOVEMENT, like="Reshape", keeps_values=True, transfer=Transfer.KEEP),
    facts("atleast_2d", Cost.MOVEMENT, like="Reshape", keeps_values=True, transfer=Transfer.KEEP),
    facts("atleast_3d", Cost.MOVEMENT, like="Reshape", keeps_values=True, transfer=Transfer.KEEP),
    facts("block_diag", Cost.MOVEMENT, like="Pad", keeps_values=True, transfer=Transfer.JOIN),
    facts("broadcast_tensors", Cost.MOVEMENT, like="Expand", keeps_values=True),
    facts("broadcast_to", Cost.MOVEMENT, like="Expand", keeps_values=True, transfer=Transfer.KEEP),
    facts("cat", Cost.MOVEMENT, like="Concat", keeps_values=True, transfer=Transfer.JOIN),
    facts("chunk", Cost.MOVEMENT, like="Split", keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "clone",
        Cost.MOVEMENT,
        like="Identity",
        function=Function.IDENTITY,
        keeps_values=True,
        transfer=Transfer.KEEP,
    ),
    facts("column_stack", Cost.MOVEMENT, like="Concat", keeps_values=True, transfer=Transfer.JOIN),
    facts("concat", Cost.MOVEMENT, like="Concat", keeps_values=True, transfer=Transfer.JOIN),
    facts("concatenate", Cost.MOVEMENT, like="Concat", keeps_values=True, transfer=Transfer.JOIN),
    facts(
        "constant_pad_nd",
        Cost.MOVEMENT,
        like="Pad",
        keeps_values=True,
        numbers=("value",),
        transfer=Transfer.MOVE,
    ),
    facts(
        "contiguous",
        Cost.MOVEMENT,
        like="Identity",
        function=Function.IDENTITY,
        keeps_values=True,
        transfer=Transfer.KEEP,
    ),
    # The second operand takes the type and shape of the first.
    facts("copy", Cost.MOVEMENT, like="Identity", keeps_values=True, transfer=Transfer.KEEP),
    facts(
        "detach",
        Cost.MOVEMENT,
        like="Identity",
        function=Function.IDENTITY,
        keeps_values=True,
        transfer=Transfer.KEEP,
    ),
    facts(
        "detach_copy",
        Cost.MOVEMENT,
        like="Identity",
        function=Function.IDENTITY,
        keeps_values=True,
        transfer=Transfer.KEEP,
    ),
    facts("diag", Cost.MOVEMENT, like="Pad", keeps_values=True, transfer=Transfer.MOVE),
    facts("diag_embed", Cost.MOVEMENT, like="Pad", keeps_values=True, transfer=Transfer.MOVE),
    facts("diagonal", Cost.MOVEMENT, like="Slice", keeps_values=True, transfer=Transfer.MOVE),
    facts("diagonal_copy", Cost.MOVEMENT, like="Slice", keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "diagonal_scatter",
        Cost.MOVEMENT,
        like="ScatterElements",
        keeps_values=True,
        transfer=Transfer.JOIN,
    ),
    # The identity in inference; in training it also scales by 1 / (1 - p).
    facts(
        "dropout",
        Cost.MOVEMENT,
        like="Dropout",
        function=Function.IDENTITY,
        keeps_values=True,
        transfer=Transfer.KEEP,
    ),
    facts("dsplit", Cost.MOVEMENT, like="Split", keeps_values=True, transfer=Transfer.MOVE),
    facts("dstack", Cost.MOVEMENT, like="Concat", keeps_values=True, transfer=Transfer.JOIN),
    # Its rows are picked whole. One that is a bag of rows is a reduction.
    facts("embedding", Cost.MOVEMENT, like="Gather", keeps_values=True, transfer=Transfer.MOVE),
    facts("expand", Cost.MOVEMENT, like="Expand", keeps_values=True, transfer=Transfer.KEEP),
    facts("expand_as", Cost.MOVEMENT, like="Expand", keeps_values=True, transfer=Transfer.KEEP),
    facts("expand_copy", Cost.MOVEMENT, like="Expand", keeps_values=True, transfer=Transfer.KEEP),
    facts(
        "feature_dropout",
        Cost.MOVEMENT,
        like="Dropout",
        function=Function.IDENTITY,
        keeps_values=True,
        transfer=Transfer.KEEP,
    ),
    facts("flatten", Cost.MOVEMENT, like="Flatten", keeps_values=True, transfer=Transfer.KEEP),
    facts("flip", Cost.MOVEMENT, like="Slice", keeps_values=True, transfer=Transfer.MOVE),
    facts("fliplr", Cost.MOVEMENT, like="Slice", keeps_values=True, transfer=Transfer.MOVE),
    facts("flipud", Cost.MOVEMENT, like="Slice", keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "gather", Cost.MOVEMENT, like="GatherElements", keeps_values=True, transfer=Transfer.MOVE
    ),
    facts("hsplit", Cost.MOVEMENT, like="Split", keeps_values=True, transfer=Transfer.MOVE),
    facts("hstack", Cost.MOVEMENT, like="Concat", keeps_values=True, transfer=Transfer.JOIN),
    # The parts of a complex number lie side by side.
    facts("imag", Cost.MOVEMENT, like="Identity", keeps_values=True, transfer=Transfer.MOVE),
    facts("index", Cost.MOVEMENT, like="GatherND", keeps_values=True, transfer=Transfer.MOVE),
    facts("index_add", Cost.MOVEMENT, Risk.SUM, like="ScatterElements", transfer=Transfer.JOIN),
    facts(
        "index_copy",
        Cost.MOVEMENT,
        like="ScatterElements",
        keeps_values=True,
        transfer=Transfer.JOIN,
    ),
    facts(
        "index_fill",
        Cost.MOVEMENT,
        like="ScatterElements",
        keeps_values=True,
        transfer=Transfer.JOIN,
    ),
    facts("index_put", Cost.MOVEMENT, like="ScatterND", transfer=Transfer.JOIN),
    facts("index_reduce", Cost.MOVEMENT, like="ScatterElements", transfer=Transfer.JOIN),
    facts("index_select", Cost.MOVEMENT, like="Gather", keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "lift",
        Cost.MOVEMENT,
        like="Identity",
        function=Function.IDENTITY,
        keeps_values=True,
        transfer=Transfer.KEEP,
    ),
    facts(
        "lift_fresh",
        Cost.MOVEMENT,
        like="Identity",
        function=Function.IDENTITY,
        keeps_values=True,
        transfer=Transfer.KEEP,
    ),
    facts(
        "lift_fresh_copy",
        Cost.MOVEMENT,
        like="Identity",
        function=Function.IDENTITY,
        keeps_values=True,
        transfer=Transfer.KEEP,
    ),
    facts("mT", Cost.MOVEMENT, like="Transpose", keeps_values=True, transfer=Transfer.MOVE),
    facts("masked_fill", Cost.MOVEMENT, like="Where", keeps_values=True, transfer=Transfer.JOIN),
    facts(
        "masked_scatter",
        Cost.MOVEMENT,
        like="ScatterElements",
        keeps_values=True,
        transfer=Transfer.JOIN,
    ),
    facts(
        "masked_select", Cost.MOVEMENT, like="Compress", keeps_values=True, transfer=Transfer.MOVE
    ),
    facts("meshgrid", Cost.MOVEMENT, like="Expand", keeps_values=True),
    facts("moveaxis", Cost.MOVEMENT, like="Transpose", keeps_values=True, transfer=Transfer.MOVE),
    facts("movedim", Cost.MOVEMENT, like="Transpose", keeps_values=True, transfer=Transfer.MOVE),
    facts("narrow", Cost.MOVEMENT, like="Slice", keeps_values=True, transfer=Transfer.MOVE),
    facts("narrow_copy", Cost.MOVEMENT, like="Slice", keeps_values=True, transfer=Transfer.MOVE),
    facts("numpy_T", Cost.MOVEMENT, like="Transpose", keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "pad",
        Cost.MOVEMENT,
        like="Pad",
        keeps_values=True,
        numbers=("value",),
        transfer=Transfer.MOVE,
    ),
    facts("permute", Cost.MOVEMENT, like="Transpose", keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "permute_copy", Cost.MOVEMENT, like="Transpose", keeps_values=True, transfer=Transfer.MOVE
    ),
    facts("put", Cost.MOVEMENT, like="ScatterND", transfer=Transfer.JOIN),
    facts("ravel", Cost.MOVEMENT, like="Reshape", keeps_values=True, transfer=Transfer.KEEP),
    facts("real", Cost.MOVEMENT, like="Identity", keeps_values=True, transfer=Transfer.MOVE),
    facts("reflection_pad1d", Cost.MOVEMENT, like="Pad", keeps_values=True, transfer=Transfer.MOVE),
    facts("reflection_pad2d", Cost.MOVEMENT, like="Pad", keeps_values=True, transfer=Transfer.MOVE),
    facts("reflection_pad3d", Cost.MOVEMENT, like="Pad", keeps_values=True, transfer=Transfer.MOVE),
    facts("repeat", Cost.MOVEMENT, like="Tile", keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "repeat_interleave", Cost.MOVEMENT, like="Tile", keeps_values=True, transfer=Transfer.MOVE
    ),
    facts(
        "replication_pad1d", Cost.MOVEMENT, like="Pad", keeps_values=True, transfer=Transfer.MOVE
    ),
    facts(
        "replication_pad2d", Cost.MOVEMENT, like="Pad", keeps_values=True, transfer=Transfer.MOVE
    ),
    facts(
        "replication_pad3d", Cost.MOVEMENT, like="Pad", keeps_values=True, transfer=Transfer.MOVE
    ),
    facts("reshape", Cost.MOVEMENT, like="Reshape", keeps_values=True, transfer=Transfer.KEEP),
    facts("reshape_as", Cost.MOVEMENT, like="Reshape", keeps_values=True, transfer=Transfer.KEEP),
    facts("roll", Cost.MOVEMENT, like="Slice", keeps_values=True, transfer=Transfer.MOVE),
    facts("rot90", Cost.MOVEMENT, like="Slice", keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "scatter", Cost.MOVEMENT, like="ScatterElements", keeps_values=True, transfer=Transfer.JOIN
    ),
    facts("scatter.reduce", Cost.MOVEMENT, like="ScatterElements", transfer=Transfer.JOIN),
    facts("scatter.value_reduce", Cost.MOVEMENT, like="ScatterElements", transfer=Transfer.JOIN),
    facts("scatter_add", Cost.MOVEMENT, Risk.SUM, like="ScatterElements", transfer=Transfer.JOIN),
    facts("scatter_reduce", Cost.MOVEMENT, like="ScatterElements", transfer=Transfer.JOIN),
    facts("select", Cost.MOVEMENT, like="Slice", keeps_values=True, transfer=Transfer.MOVE),
    facts("select_copy", Cost.MOVEMENT, like="Slice", keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "select_scatter",
        Cost.MOVEMENT,
        like="ScatterElements",
        keeps_values=True,
        transfer=Transfer.JOIN,
    ),
    facts("slice", Cost.MOVEMENT, like="Slice", keeps_values=True, transfer=Transfer.MOVE),
    facts("slice_copy", Cost.MOVEMENT, like="Slice", keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "slice_scatter",
        Cost.MOVEMENT,
        like="ScatterElements",
        keeps_values=True,
        transfer=Transfer.JOIN,
    ),
    facts("split", Cost.MOVEMENT, like="Split", keeps_values=True, transfer=Transfer.MOVE),
    facts("split_copy", Cost.MOVEMENT, like="Split", keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "split_with_sizes", Cost.MOVEMENT, like="Split", keeps_values=True, transfer=Transfer.MOVE
    ),
    facts(
        "split_with_sizes_copy",
        Cost.MOVEMENT,
        like="Split",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts("squeeze", Cost.MOVEMENT, like="Squeeze", keeps_values=True, transfer=Transfer.KEEP),
    facts("squeeze_copy", Cost.MOVEMENT, like="Squeeze", keeps_values=True, transfer=Transfer.KEEP),
    facts("stack", Cost.MOVEMENT, like="Concat", keeps_values=True, transfer=Transfer.JOIN),
    facts("swapaxes", Cost.MOVEMENT, like="Transpose", keeps_values=True, transfer=Transfer.MOVE),
    facts("swapdims", Cost.MOVEMENT, like="Transpose", keeps_values=True, transfer=Transfer.MOVE),
    facts("t", Cost.MOVEMENT, like="Transpose", keeps_values=True, transfer=Transfer.MOVE),
    facts("t_copy", Cost.MOVEMENT, like="Transpose", keeps_values=True, transfer=Transfer.MOVE),
    facts("take", Cost.MOVEMENT, like="GatherND", keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "take_along_dim",
        Cost.MOVEMENT,
        like="GatherElements",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts("tensor_split", Cost.MOVEMENT, like="Split", keeps_values=True, transfer=Transfer.MOVE),
    facts("tile", Cost.MOVEMENT, like="Tile", keeps_values=True, transfer=Transfer.MOVE),
    facts("transpose", Cost.MOVEMENT, like="Transpose", keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "transpose_copy", Cost.MOVEMENT, like="Transpose", keeps_values=True, transfer=Transfer.MOVE
    ),
    facts("tril", Cost.MOVEMENT, like="Trilu", keeps_values=True, transfer=Transfer.MOVE),
    facts("triu", Cost.MOVEMENT, like="Trilu", keeps_values=True, transfer=Transfer.MOVE),
    facts("unbind", Cost.MOVEMENT, like="Split", keeps_values=True, transfer=Transfer.MOVE),
    facts("unbind_copy", Cost.MOVEMENT, like="Split", keeps_values=True, transfer=Transfer.MOVE),
    facts("unflatten", Cost.MOVEMENT, like="Reshape", keeps_values=True, transfer=Transfer.KEEP),
    facts("unfold", Cost.MOVEMENT, like="Slice", keeps_values=True, transfer=Transfer.MOVE),
    facts("unfold_copy", Cost.MOVEMENT, like="Slice", keeps_values=True, transfer=Transfer.MOVE),
    facts("unsafe_chunk", Cost.MOVEMENT, like="Split", keeps_values=True, transfer=Transfer.MOVE),
    facts("unsafe_split", Cost.MOVEMENT, like="Split", keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "unsafe_split_with_sizes",
        Cost.MOVEMENT,
        like="Split",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts("unsqueeze", Cost.MOVEMENT, like="Unsqueeze", keeps_values=True, transfer=Transfer.KEEP),
    facts(
        "unsqueeze_copy", Cost.MOVEMENT, like="Unsqueeze", keeps_values=True, transfer=Transfer.KEEP
    ),
    facts("view", Cost.MOVEMENT, like="Reshape", keeps_values=True, transfer=Transfer.KEEP),
    facts("view_as", Cost.MOVEMENT, like="Reshape", keeps_values=True, transfer=Transfer.KEEP),
    facts(
        "view_as_complex", Cost.MOVEMENT, like="Identity", keeps_values=True, transfer=Transfer.MOVE
    ),
    facts(
        "view_as_complex_copy",
        Cost.MOVEMENT,
        like="Identity",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts(
        "view_as_real", Cost.MOVEMENT, like="Identity", keeps_values=True, transfer=Transfer.MOVE
    ),
    facts(
        "view_as_real_copy",
        Cost.MOVEMENT,
        like="Identity",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts("view_copy", Cost.MOVEMENT, like="Reshape", keeps_values=True, transfer=Transfer.KEEP),
    facts("vsplit", Cost.MOVEMENT, like="Split", keeps_values=True, transfer=Transfer.MOVE),
    facts("vstack", Cost.MOVEMENT, like="Concat", keeps_values=True, transfer=Transfer.JOIN),
    facts(
        "where",
        Cost.MOVEMENT,
        like="Where",
        function=Function.SELECT,
        keeps_values=True,
        transfer=Transfer.SELECT,
    ),
)
