"""Do power-of-two scales leave every FP32 answer as it is, bit for bit? Over random graphs and ONNX's operator tests;
with --torch over PyTorch's core operators and random modules in their place.

    python benchmarks/rescaling.py --graphs 5000
    python benchmarks/rescaling.py --torch --graphs 300

Each value gets a random exponent from -4 to 6, as the operators' equations allow. ONNX Runtime answers without
optimisations, which add in other orders. Models with constants or answers past 1e30 are left out: scales take those
out of FP32's range. Operator tests get a multiplication by 1 after each input, so that it can be scaled. Ends with 1
where an answer differs.
"""

import argparse
import json
import random
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
from conformance import describe_environment
from onnx.backend.test.case.node import collect_testcases

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from random_models import random_feeds, random_model
from scaled_models import answers, is_near_the_end, is_same, with_random_scales

Case = tuple[str, onnx.ModelProto, dict[str, np.ndarray]]
TRIALS = 3  # of each operator test
SAMPLES = 12  # calls of each operator of PyTorch


def random_cases(count: int) -> Iterator[Case]:
    for seed in range(count):
        rng = random.Random(seed)
        model = random_model(rng, rng.randint(5, 25))
        yield f"graph {seed}", model, random_feeds(model, rng)


def operator_cases() -> Iterator[Case]:
    for case in collect_testcases(None):
        graph = case.model.graph
        has_floats = any(port.type.tensor_type.elem_type == onnx.TensorProto.FLOAT for port in graph.input)
        has_domain = any(entry.domain in ("", "ai.onnx") for entry in case.model.opset_import)
        if has_floats and has_domain and "training_dropout" not in case.name:  # draws at random
            for _ in range(TRIALS):
                feeds = {port.name: array for port, array in zip(graph.input, case.data_sets[0][0], strict=False)}
                yield case.name, free(case.model), feeds


def free(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a multiplication by 1 after each float input."""
    freed = onnx.ModelProto()
    freed.CopyFrom(model)
    graph = freed.graph
    for port in graph.input:
        if port.type.tensor_type.elem_type != onnx.TensorProto.FLOAT:
            continue
        for node in graph.node:
            for at, name in enumerate(node.input):
                if name == port.name:
                    node.input[at] = f"{name}_free"
        one = onnx.numpy_helper.from_array(np.float32(1), f"{port.name}_one")
        graph.initializer.append(one)
        graph.node.insert(0, onnx.helper.make_node("Mul", [port.name, one.name], [f"{port.name}_free"]))
    return freed


def judge(cases: Iterator[Case]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for name, model, feeds in cases:
        try:
            expected = answers(model, feeds)
        except Exception:  # noqa: BLE001, what the runtime lacks shows nothing
            counts["not run"] += 1
            continue
        if is_near_the_end(model, expected):
            counts["past 1e30"] += 1
            continue
        changed, exponents = with_random_scales(model, random.Random(f"{name} {sum(counts.values())}"))
        if not is_same(expected, answers(changed, feeds)):
            counts["different"] += 1
            print(f"different: {name} {exponents}", flush=True)
        else:
            counts["equal, scaled" if any(exponents.values()) else "equal, nothing to scale"] += 1
    return counts


def judge_programs(graphs: int) -> dict[str, Counter[str]]:
    """The same over PyTorch's programs: up to twelve sample calls of each core operator, three times each, with random
    operands as weights; and random modules.
    """
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "pytorch"))
    import torch
    import torch._inductor.lowering  # before its table of decompositions
    from operator_calls import calls_of
    from scaled_programs import answers, is_near_the_end, is_same, module_program, traced, with_random_scales

    def judged(name: str, program: object, operands: list[torch.Tensor], rng: random.Random) -> str:
        expected = answers(program, operands)
        if is_near_the_end([*operands, *expected]):
            return "past 1e30"
        changed, exponents = with_random_scales(program, rng)
        if is_same(expected, answers(changed, operands)):
            return "equal, scaled" if any(exponents.values()) else "equal, nothing to scale"
        print(f"different: {name} {exponents}", flush=True)
        return "different"

    found = {"operators": Counter[str](), "modules": Counter[str]()}
    with torch.no_grad():
        for call in calls_of(SAMPLES, tries=2 * SAMPLES):
            for trial in range(TRIALS if "empty" not in str(call.func) else 0):  # that holds what memory holds
                rng = random.Random(f"{call} {trial}")
                found["operators"][judged(str(call), *traced(call, rng), rng)] += 1
        for seed in range(graphs):
            rng = random.Random(seed)
            found["modules"][judged(f"module {seed}", *module_program(seed), rng)] += 1
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=2000)
    parser.add_argument("--torch", action="store_true", help="programs of PyTorch")
    parser.add_argument("--json", type=Path, default=Path("out/rescaling.json"))
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    if given.torch:
        found = judge_programs(given.graphs)
    else:
        found = {"random graphs": judge(random_cases(given.graphs)), "operator tests": judge(operator_cases())}
    for title, counts in found.items():
        print(f"{title}: " + ", ".join(f"{count} {word}" for word, count in sorted(counts.items())))
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps({"environment": describe_environment("mezzo"), **found}, indent=1))
    return 1 if any(counts["different"] for counts in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
