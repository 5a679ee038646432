"""Arrays as people have them, fitted to a model's inputs where only one reading is possible: one
array for one input, tuples in the order of the inputs, one sample without its batch axis.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mezzo.common.errors import InputError
from mezzo.common.message_style import either, option
from mezzo.formats.dtypes import FORMATS, DType
from mezzo.ir.input_roles import Slot
from mezzo.numerics.data.expected_arrays import ExpectedArrays, quote

Shape = tuple[int, ...]
_IMAGE_RANK = 3


def take_only_array(
    path: Path, names: Sequence[str], expected: ExpectedArrays, wanted: str | None = None
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The input that a file's only array is for, by the array's name, with a note if the array has
    another name. Empty if the arrays have names of their own. `wanted`: the input that the user
    names.

    Raises InputError: the user names an input, and the file holds several arrays; or the array of
    an .npy file may be for several inputs.
    """
    arrays = [name for name in names if name not in expected.labels]
    if wanted is not None:
        if wanted in names:
            return {}, ()
        if len(arrays) != 1:
            raise InputError(
                f"{path}: holds {len(arrays)} arrays, {quote(arrays)}, and one is wanted for"
                f" {wanted!r}; name it so, or keep it alone"
            )
        return {arrays[0]: wanted}, ()
    inputs = expected.required
    is_bare = path.suffix.lower() == ".npy"
    if is_bare and len(inputs) > 1:
        raise InputError(
            f"{path}: holds one array, and the model wants {expected.describe()}; give a file for"
            f" each input: {option('data')} {inputs[0]}={path}"
        )
    if len(arrays) != 1 or len(inputs) != 1 or arrays[0] in expected.inputs:
        return {}, ()
    if not set(expected.labels) <= set(names):  # it may be a label under another name
        return {}, ()
    note = f"array {arrays[0]!r} is taken for input {inputs[0]!r}"
    return {arrays[0]: inputs[0]}, () if is_bare else (note,)


def name_arrays(where: str, item: Any, expected: ExpectedArrays) -> tuple[Mapping[str, Any], str]:
    """The arrays of a batch by name, and a note: of a dict, of one array for the only input, or of
    a tuple in the order of inputs and labels, whose other elements are left out.

    Raises InputError: it is none of these.
    """
    if isinstance(item, Mapping):
        return item, ""
    inputs = expected.required
    if hasattr(item, "shape"):
        if len(inputs) == 1 and not expected.labels:
            return {inputs[0]: item}, ""
        raise InputError(
            f"{where}: found an array without a name, and the model wants {expected.describe()};"
            " give a dict of arrays by input name"
        )
    if isinstance(item, tuple | list) and item and isinstance(item[0], Mapping):
        return item[0], "" if len(item) == 1 else "of each batch only the dict is taken"
    if isinstance(item, tuple | list) and item and all(hasattr(each, "shape") for each in item):
        names = [*inputs, *expected.labels]
        if len(item) < len(names):
            raise InputError(
                f"{where}: found {len(item)} arrays without names, and the model wants"
                f" {expected.describe()}; give a dict of arrays by input name"
            )
        taken = dict(zip(names, item, strict=False))
        is_all = len(item) == len(names)
        return taken, "" if is_all else f"of each batch of {len(item)} only {quote(names)} is taken"
    raise InputError(f"{where}: found a {type(item).__name__}; give a dict of arrays by input name")


def find_flat(
    shapes: Mapping[str, Shape], types: Mapping[str, Slot]
) -> tuple[frozenset[str], tuple[str, ...]]:
    """The inputs whose arrays are one sample without a batch axis, with a note. Empty where there
    is doubt: each array lacks one axis, and its fixed lengths are those of the input behind the
    first.
    """
    flat = set()
    for name, shape in shapes.items():
        slot = types.get(name)
        if slot is None or not slot.lengths:
            continue
        if not _is_one_sample(shape, slot):
            return frozenset(), ()
        flat.add(name)
    note = f"a batch axis is added to {quote(sorted(flat))}"
    return frozenset(flat), (note,) if flat else ()


def add_batch_axis(arrays: Mapping[str, Any], flat: Collection[str]) -> Mapping[str, Any]:
    """The arrays, those of `flat` as a batch of one sample."""
    if not flat:
        return arrays
    return {name: array[np.newaxis] if name in flat else array for name, array in arrays.items()}


def check_images(feeds: Mapping[str, Any], types: Mapping[str, Slot]) -> None:
    """Raises InputError: a float input gets bytes of images, which no model was trained on as they
    are.
    """
    for name, feed in feeds.items():
        slot = types.get(name)
        if slot is None or slot.dtype not in FORMATS or getattr(feed, "dtype", None) != np.uint8:
            continue
        if feed.ndim >= _IMAGE_RANK:
            lengths = ",".join(map(str, feed.shape))
            remedy = either(
                "give --preprocess scale=1/255, or store it as float32",
                "give mezzo.DataFiles(..., preprocess='scale=1/255'), or .astype(np.float32)",
            )
            raise InputError(
                f"input {name!r}: found u8[{lengths}], numbers from 0 to 255, wanted"
                f" {spell_slot(slot)} as the model was trained on; {remedy}"
            )


def spell_slot(slot: Slot) -> str:
    """Type and shape of an input: "f32[N,3,224,224]"."""
    lengths = "?" if slot.lengths is None else ",".join(str(each or "?") for each in slot.lengths)
    return f"{slot.dtype or '?'}[{lengths}]"


def is_float(slot: Slot | None) -> bool:
    """Whether an input holds floats, or its type is not known."""
    return slot is None or slot.dtype is None or slot.dtype in FORMATS


def is_text(slot: Slot | None) -> bool:
    """Whether an input holds strings."""
    return slot is not None and slot.dtype is DType.STRING


def as_array(value: Any) -> Any:
    """A NumPy array of a value with a shape, such as a tensor of PyTorch on any device; lists and
    None stay.
    """
    if not hasattr(value, "shape"):
        return value
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":  # NumPy has no such type
            value = value.float()
    return np.asarray(value)


def shapes_of(values: Mapping[str, Any]) -> dict[str, Shape]:
    """The shapes of the arrays among values."""
    return {name: value.shape for name, value in values.items() if isinstance(value, np.ndarray)}


def _is_one_sample(shape: Iterable[int], slot: Slot) -> bool:
    first, *inner = slot.lengths or (None,)
    shape = tuple(shape)
    if slot.is_list or len(shape) != len(inner) or (isinstance(first, int) and first != 1):
        return False
    fixed = [(want, have) for want, have in zip(inner, shape, strict=True) if isinstance(want, int)]
    return bool(fixed) and all(want == have for want, have in fixed)
