"""Function specialization: calls with equal edited bodies share a function variant."""

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
    originals = {_key(function): function for function in model.functions}
    contents = {key: _content(function) for key, function in originals.items()}
    variants: dict[_Key, dict[bytes, onnx.FunctionProto]] = {key: {} for key in originals}
    unchanged: set[_Key] = set()
    names_in_use = {(function.domain, function.name) for function in model.functions}
    calls = _calls(handles)
    for container in reversed(calls):
        key, call, function = container.key, container.call, container.root
        assert key is not None, "a call has a function's name"
        assert call is not None, "a call has a node"
        assert isinstance(function, onnx.FunctionProto), "a call has a function"
        content = _content(function)
        if content == contents[key]:
            unchanged.add(key)
            continue
        if content not in variants[key]:
            function.name = _fresh(names_in_use, key)
            variants[key][content] = function
        name_node(call)
        call.op_type = variants[key][content].name
    called = {container.key for container in calls}
    functions = []
    for key, original in originals.items():
        if key in unchanged or key not in called:
            functions.append(original)
        functions += variants[key].values()
    del model.functions[:]
    model.functions.extend(functions)


def _key(function: onnx.FunctionProto) -> _Key:
    return function.domain, function.name, function.overload


def _content(function: onnx.FunctionProto) -> bytes:
    data: bytes = function.SerializeToString(deterministic=True)
    return data


def _calls(handles: Handles) -> list[Container]:
    by_id: dict[int, Container] = {id(c): c for c in handles.containers if c.key is not None}
    return list(by_id.values())


def _fresh(names_in_use: set[tuple[str, str]], key: _Key) -> str:
    count = 1
    while (key[0], f"{key[1]}_{count}") in names_in_use:
        count += 1
    names_in_use.add((key[0], f"{key[1]}_{count}"))
    return f"{key[1]}_{count}"
