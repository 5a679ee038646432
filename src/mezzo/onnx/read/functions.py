"""Function specialization: calls with equal edited bodies share a function variant."""

from copy import deepcopy

import onnx

from mezzo.onnx.read.handles import Container, Handles
from mezzo.onnx.read.origins import name_node

_Key = tuple[str, str, str]


def replace_functions(handles: Handles) -> None:
    """Compare each call's copy to its function, add variants if they differ, drop unused ones.

    Nested calls come later in `containers`, so iteration is backwards, to name them first.
    """
    model = handles.model
    if not model.functions:
        return
    originals: dict[_Key, bytes] = {}
    order: dict[_Key, onnx.FunctionProto] = {}
    for function in model.functions:
        key = (function.domain, function.name, function.overload)
        originals[key] = function.SerializeToString(deterministic=True)
        order[key] = function
    variants: dict[_Key, dict[bytes, str]] = {}
    specialised: dict[_Key, list[onnx.FunctionProto]] = {}
    used: set[_Key] = set()
    names_in_use = {(f.domain, f.name) for f in model.functions}
    for container in reversed(_calls(handles)):
        name, call, copy = container.key, container.call, container.root
        assert name is not None, "a call has a function's name"
        assert call is not None, "a call has a node"
        assert isinstance(copy, onnx.FunctionProto), "a call has a function"
        key = name
        content = copy.SerializeToString(deterministic=True)
        if content == originals[key]:
            used.add(key)
            continue
        names = variants.setdefault(key, {})
        if content not in names:
            names[content] = _fresh(names_in_use, key)
            copy.name = names[content]
            specialised.setdefault(key, []).append(copy)
        name_node(call)
        call.op_type = names[content]
    called = {(c.key) for c in _calls(handles)}
    functions = []
    for key, function in order.items():
        if key in used or key not in called:
            functions.append(deepcopy(function))
        functions += [deepcopy(f) for f in specialised.get(key, ())]
    del model.functions[:]
    model.functions.extend(functions)


def _calls(handles: Handles) -> list[Container]:
    by_id: dict[int, Container] = {id(c): c for c in handles.containers if c.key is not None}
    return list(by_id.values())


def _fresh(names_in_use: set[tuple[str, str]], key: _Key) -> str:
    count = 1
    while (key[0], f"{key[1]}_{count}") in names_in_use:
        count += 1
    names_in_use.add((key[0], f"{key[1]}_{count}"))
    return f"{key[1]}_{count}"
