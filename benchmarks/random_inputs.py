"""Do random inputs fit real architectures? Draws inputs for every model of a folder and counts finite answers.

    python benchmarks/random_inputs.py FOLDER

Prints a line for each model on which they do not run or give NaN, then how many of how many they fit.
"""

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mezzo.common.errors import MezzoError
from mezzo.contracts.frontend import lab_of
from mezzo.conversion.results import open_source
from mezzo.evaluate.model_data import open_model_data


def are_finite(answers: Iterable[Any]) -> bool:
    """Whether every number of every answer is finite."""
    return all(np.isfinite(np.asarray(answer).astype(np.float64)).all() for answer in answers if answer is not None)


def fault_of(path: Path, seed: int) -> str | None:
    """What is wrong with inputs drawn for a model; None where nothing is."""
    model = open_source(path, False, None)
    try:
        run = lab_of(model).native()
        answers: list[Mapping[str, Any]] = [run(batch.feeds) for batch in open_model_data(model, f"random:{seed}")]
    except MezzoError as error:
        return str(error)
    return None if all(are_finite(each.values()) for each in answers) else "answers that are not finite"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    paths = sorted(given.folder.glob("*.onnx"))
    faults = {path.name: fault for path in paths if (fault := fault_of(path, given.seed)) is not None}
    for name, fault in faults.items():
        print(f"{name}: {fault}")
    print(f"random inputs run and give finite answers on {len(paths) - len(faults)} of {len(paths)} models")


if __name__ == "__main__":
    main()
