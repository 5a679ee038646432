"""Files of NumPy: .npz with an array for each input, .npy with one array."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from mezzo.numerics.data.array_fitting import add_batch_axis, find_flat, take_only_array
from mezzo.numerics.data.npz import NpyFile, NpzFile
from mezzo.numerics.data.readers.parts import Arrays, Part, Reading, Run, digest_of


def open_npz(path: Path, reading: Reading) -> Part:
    """The arrays of an .npz file. Raises InputError: it is damaged or hostile."""
    return _open(path, lambda: NpzFile(path), reading)


def open_npy(path: Path, reading: Reading) -> Part:
    """The array of an .npy file. Raises InputError: it is damaged or hostile."""
    return _open(path, lambda: NpyFile(path), reading)


def _open(path: Path, opening: Callable[[], NpzFile | NpyFile], reading: Reading) -> Part:
    expected = reading.expected
    with opening() as opened:
        inputs, notes = take_only_array(opened.path, opened.names, expected, reading.name)
        # The array of the file by the name that the model has for it.
        stored = {inputs.get(name, name): name for name in opened.names}
        wanted = expected.known if reading.name is None else {reading.name}
        stored = {name: array for name, array in stored.items() if name in wanted}
        shapes = {name: opened.header(array).shape for name, array in stored.items()}
        digest = digest_of(opened.checksums)
        names = tuple(inputs.get(name, name) for name in opened.names)
    if reading.name is not None:
        names = (reading.name,)
    flat, flat_notes = find_flat(shapes, expected.types)
    lengths = {name: shape[0] for name, shape in shapes.items() if shape} | dict.fromkeys(flat, 1)
    whole = [(0, max(lengths.values(), default=0))]

    def read(runs: Sequence[Run]) -> Iterator[Arrays]:
        with opening() as opened:
            cut = () if list(runs) == whole else tuple(lengths)
            fixed = {name: opened.read(stored[name]) for name in stored if name not in cut}
            sizes = [end - start for start, end in runs]
            rows = {name: opened.read_rows(stored[name], sizes) for name in cut}
            for _ in runs:
                arrays = {**fixed, **{name: next(array) for name, array in rows.items()}}
                yield add_batch_axis({name: arrays[name] for name in stored}, flat)

    return Part(
        where=str(path), origin=path.name, names=names, lengths=lengths, read=read, digest=digest,
        notes=(*notes, *flat_notes),
    )  # fmt: skip
