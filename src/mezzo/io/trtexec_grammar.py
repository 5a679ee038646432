"""Per-layer flags of trtexec, "NAME:TYPE,NAME:TYPE+TYPE".

Source: `trtexec --help`, TensorRT 8.6 to 10.16.
"""

# Characters that separate names from types and specs from each other; no quoting is documented.
SEPARATORS = frozenset(",:")


def spell_layers(types: dict[str, str]) -> str:
    """The value of --layerPrecisions or --layerOutputTypes; names contain no separator."""
    return ",".join(f"{name}:{dtype}" for name, dtype in types.items())


def read_layers(text: str) -> list[tuple[str, str]]:
    """Names and types in order. Raises ValueError: a part without a type.

    A name may contain ":", as mezzo's name of an unnamed node does; the type follows the last one.
    """
    layers = []
    for part in filter(None, text.split(",")):
        name, colon, dtype = part.rpartition(":")
        if not colon or not name or not dtype:
            raise ValueError(f"{part!r} is not NAME:TYPE")
        layers.append((name, dtype))
    return layers
