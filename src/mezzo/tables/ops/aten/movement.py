"""Data movement: operators that move, repeat or select elements without arithmetic.

Scatter operators may combine elements at one position, so they do not always keep values.
"""

from collections.abc import Mapping

from mezzo.tables.facts import Cost, OpFacts, Risk, Transfer, facts

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
    facts(
        "as_strided_scatter",
        Cost.MOVEMENT,
        like="ScatterElements",
        keeps_values=True,
        transfer=Transfer.JOIN,
    ),
    facts("block_diag", Cost.MOVEMENT, like="Pad", keeps_values=True, transfer=Transfer.JOIN),
    facts("broadcast_tensors", Cost.MOVEMENT, like="Expand", keeps_values=True),
    # The second operand takes the type and shape of the first.
    facts("copy", Cost.MOVEMENT, like="Identity", keeps_values=True, transfer=Transfer.KEEP),
    facts("diag", Cost.MOVEMENT, like="Pad", keeps_values=True, transfer=Transfer.MOVE),
    facts("diag_embed", Cost.MOVEMENT, like="Pad", keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "diagonal_scatter",
        Cost.MOVEMENT,
        like="ScatterElements",
        keeps_values=True,
        transfer=Transfer.JOIN,
    ),
    # The parts of a complex number lie side by side.
    facts("imag", Cost.MOVEMENT, like="Identity", keeps_values=True, transfer=Transfer.MOVE),
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
    facts("masked_fill", Cost.MOVEMENT, like="Where", keeps_values=True, transfer=Transfer.JOIN),
    facts(
        "masked_scatter",
        Cost.MOVEMENT,
        like="ScatterElements",
        keeps_values=True,
        transfer=Transfer.JOIN,
    ),
    facts("meshgrid", Cost.MOVEMENT, like="Expand", keeps_values=True),
    facts("real", Cost.MOVEMENT, like="Identity", keeps_values=True, transfer=Transfer.MOVE),
    facts("reflection_pad1d", Cost.MOVEMENT, like="Pad", keeps_values=True, transfer=Transfer.MOVE),
    facts("reflection_pad2d", Cost.MOVEMENT, like="Pad", keeps_values=True, transfer=Transfer.MOVE),
    facts("reflection_pad3d", Cost.MOVEMENT, like="Pad", keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "replication_pad1d", Cost.MOVEMENT, like="Pad", keeps_values=True, transfer=Transfer.MOVE
    ),
    facts(
        "replication_pad2d", Cost.MOVEMENT, like="Pad", keeps_values=True, transfer=Transfer.MOVE
    ),
    facts(
        "replication_pad3d", Cost.MOVEMENT, like="Pad", keeps_values=True, transfer=Transfer.MOVE
    ),
    facts(
        "scatter", Cost.MOVEMENT, like="ScatterElements", keeps_values=True, transfer=Transfer.JOIN
    ),
    facts("scatter_add", Cost.MOVEMENT, Risk.SUM, like="ScatterElements", transfer=Transfer.JOIN),
    facts(
        "select_scatter",
        Cost.MOVEMENT,
        like="ScatterElements",
        keeps_values=True,
        transfer=Transfer.JOIN,
    ),
    facts(
        "slice_scatter",
        Cost.MOVEMENT,
        like="ScatterElements",
        keeps_values=True,
        transfer=Transfer.JOIN,
    ),
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
)

# Operators with all facts of the ONNX operator named.
EQUIVALENTS: Mapping[str, str] = {
    "_reshape_alias": "Reshape",
    "_reshape_copy": "Reshape",
    "_unsafe_index": "GatherND",
    "_unsafe_index_put": "ScatterND",
    "_unsafe_view": "Reshape",
    "adjoint": "Transpose",
    "alias": "Identity",
    "alias_copy": "Identity",
    "as_strided": "Slice",
    "as_strided_copy": "Slice",
    "atleast_1d": "Reshape",
    "atleast_2d": "Reshape",
    "atleast_3d": "Reshape",
    "broadcast_to": "Expand",
    "cat": "Concat",
    "chunk": "Split",
    "clone": "Identity",
    "column_stack": "Concat",
    "concat": "Concat",
    "concatenate": "Concat",
    "constant_pad_nd": "Pad",
    "contiguous": "Identity",
    "detach": "Identity",
    "detach_copy": "Identity",
    "diagonal": "Slice",
    "diagonal_copy": "Slice",
    # The identity in inference; in training it also scales by 1 / (1 - p).
    "dropout": "Dropout",
    "dsplit": "Split",
    "dstack": "Concat",
    # Its rows are picked whole. One that is a bag of rows is a reduction.
    "embedding": "Gather",
    "expand": "Expand",
    "expand_as": "Expand",
    "expand_copy": "Expand",
    "feature_dropout": "Dropout",
    "flatten": "Flatten",
    "flip": "Slice",
    "fliplr": "Slice",
    "flipud": "Slice",
    "gather": "GatherElements",
    "hsplit": "Split",
    "hstack": "Concat",
    "index": "GatherND",
    "index_put": "ScatterND",
    "index_reduce": "ScatterElements",
    "index_select": "Gather",
    "lift": "Identity",
    "lift_fresh": "Identity",
    "lift_fresh_copy": "Identity",
    "mT": "Transpose",
    "masked_select": "Compress",
    "moveaxis": "Transpose",
    "movedim": "Transpose",
    "narrow": "Slice",
    "narrow_copy": "Slice",
    "numpy_T": "Transpose",
    "pad": "Pad",
    "permute": "Transpose",
    "permute_copy": "Transpose",
    "put": "ScatterND",
    "ravel": "Reshape",
    "repeat": "Tile",
    "repeat_interleave": "Tile",
    "reshape": "Reshape",
    "reshape_as": "Reshape",
    "roll": "Slice",
    "rot90": "Slice",
    "scatter.reduce": "ScatterElements",
    "scatter.value_reduce": "ScatterElements",
    "scatter_reduce": "ScatterElements",
    "select": "Slice",
    "select_copy": "Slice",
    "slice": "Slice",
    "slice_copy": "Slice",
    "split": "Split",
    "split_copy": "Split",
    "split_with_sizes": "Split",
    "split_with_sizes_copy": "Split",
    "squeeze": "Squeeze",
    "squeeze_copy": "Squeeze",
    "stack": "Concat",
    "swapaxes": "Transpose",
    "swapdims": "Transpose",
    "t": "Transpose",
    "t_copy": "Transpose",
    "take": "GatherND",
    "take_along_dim": "GatherElements",
    "tensor_split": "Split",
    "tile": "Tile",
    "transpose": "Transpose",
    "transpose_copy": "Transpose",
    "tril": "Trilu",
    "triu": "Trilu",
    "unbind": "Split",
    "unbind_copy": "Split",
    "unflatten": "Reshape",
    "unfold": "Slice",
    "unfold_copy": "Slice",
    "unsafe_chunk": "Split",
    "unsafe_split": "Split",
    "unsafe_split_with_sizes": "Split",
    "unsqueeze": "Unsqueeze",
    "unsqueeze_copy": "Unsqueeze",
    "view": "Reshape",
    "view_as": "Reshape",
    "view_copy": "Reshape",
    "vsplit": "Split",
    "vstack": "Concat",
    "where": "Where",
}
