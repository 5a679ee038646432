"""Models of many alike blocks: what stands in one place is found, run together, and told as what it is."""

import hashlib
import math
import statistics
from collections import Counter

import onnx
import onnx.parser
import pytest
from block_models import block_feeds, block_model

import mezzo
from mezzo.contracts.options.request import Request
from mezzo.conversion.judged_model import judge_model
from mezzo.conversion.results import open_source
from mezzo.evaluate.model_data import open_model_data
from mezzo.planner.options import read_options
from mezzo.tuning.evaluator import Evaluator, few_samples, places_of, units_of
from mezzo.tuning.goals import score_one
from mezzo.tuning.sensitivity import Probing, probe_units

BLOCKS = 10


def rig_of(model: onnx.ModelProto) -> Evaluator:
    return Evaluator(open_source(model, False, None), read_options(Request(policy="aggressive")))


def renamed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with names that tell nothing."""
    for node in model.graph.node:
        digest = hashlib.sha256(node.name.encode()).hexdigest()
        node.name = "".join(chr(ord("a") + int(sign, 16)) for sign in digest)
    return model


@pytest.mark.parametrize("change", [lambda model: model, renamed], ids=["named", "nameless"])
def test_alike_blocks_have_one_place_for_each_of_their_operators(change) -> None:
    evaluator = rig_of(change(block_model(BLOCKS)))
    units = units_of(evaluator.judged, *evaluator.lows)
    count = Counter(places_of(evaluator.graph, units))
    # 25 operators of a block compute; at both ends some have other neighbours than their like inside.
    repeated = [size for size in count.values() if size > 1]
    assert len(repeated) == 25 and min(repeated) >= BLOCKS - 2 and max(repeated) <= BLOCKS
    assert len(units) - sum(repeated) <= 30


def test_a_query_is_no_value_and_the_first_norm_no_second() -> None:
    evaluator = rig_of(renamed(block_model(BLOCKS)))
    units = units_of(evaluator.judged, *evaluator.lows)
    plain = [node.name for node in block_model(BLOCKS).graph.node]
    renamed_to = [node.name for node in renamed(block_model(BLOCKS)).graph.node]
    own = dict(zip(renamed_to, plain, strict=True))
    place = {own[unit.name]: at for unit, at in zip(units, places_of(evaluator.graph, units), strict=True)}
    inner = [f"/encoder/layer.4/{part}" for part in ("query/MatMul", "key/MatMul", "value/MatMul", "first/Norm",
                                                     "second/Norm", "output/Residual", "down/Residual")]  # fmt: skip
    assert len({place[name] for name in inner}) == len(inner)
    assert all(place[name] == place[name.replace("layer.4", "layer.5")] for name in inner)


def test_shares_of_alike_blocks_hold_within_what_is_told() -> None:
    model, feeds = block_model(BLOCKS), block_feeds(16)
    found = mezzo.sensitivity(model, feeds)
    evaluator = rig_of(model)
    batch = few_samples(evaluator, next(iter(open_model_data(evaluator.model, feeds))))
    alone = {
        unit.name: score_one(evaluator, {}, dict.fromkeys(unit.nodes, unit.dtype), batch).error
        for unit in units_of(evaluator.judged, *evaluator.lows)
    }
    assert found.runs <= 48 and any(unit.is_measured for unit in found.units)
    for unit in found.units:
        assert (unit.together == 1) is unit.is_measured is (unit.low is None) is (unit.high is None)
        if unit.is_measured:
            assert unit.error == alone[unit.name], unit
    # Those that cost less than a thousandth of the whole decide nothing.
    shared = [unit for unit in found.units if not unit.is_measured and alone[unit.name] > 1e-3 * found.all_low]
    inside = [(unit.low or 0.0) <= alone[unit.name] <= (unit.high or 0.0) for unit in shared]
    # An interval of 95 % confidence, from eight checks, on some two hundred units that are not independent.
    assert statistics.fmean(inside) > 0.8


def test_the_frontier_says_how_far_its_predictions_were_off() -> None:
    tuned = mezzo.tune(block_model(BLOCKS), data=block_feeds(16), max_error=1e-3)
    assert tuned.measured is not None and tuned.measured.search is not None
    made = tuned.measured.search.prediction
    pairs = [(p.predicted_error, p.error) for p in tuned.measured.frontier if p.error and p.predicted_error]
    assert made is not None and made.points == len(pairs) > 0
    assert made.low <= 1.0 <= made.high
    ratios = [error / predicted for predicted, error in pairs]
    # Fitted: their logarithms add up to nothing, up to rounding.
    assert math.isclose(math.prod(ratios), 1.0, rel_tol=1e-9)
    assert math.isclose(min(ratios), made.low, rel_tol=1e-9) and math.isclose(max(ratios), made.high, rel_tol=1e-9)


def probe(errors: list[float], places: list[int], most: int = 48) -> Probing:
    def run(units) -> float:
        return math.sqrt(sum(errors[unit] ** 2 for unit in units))

    return probe_units([1.0] * len(errors), run, most, places=places)


def test_a_place_that_costs_most_is_found_whatever_the_order() -> None:
    places = [place for _ in range(36) for place in range(20)]
    errors = [1e-3 if place == 7 else 1e-5 for place in places]
    found = probe(errors, places)
    for place, error, cost in zip(places, errors, found.costs, strict=True):
        # Equal units of one place: their shares are what they cost, up to the roundings of a sum of 36 squares.
        assert math.isclose(math.sqrt(cost.square), error, rel_tol=1e-9), place


def test_an_odd_one_of_its_place_is_bounded_by_its_group_and_found_when_it_matters() -> None:
    places = [place for _ in range(36) for place in range(5)]
    errors = [1e-5] * len(places)
    errors[87] = 1e-2
    found = probe(errors, places)
    assert found.costs[87].is_measured
    for at, error in enumerate(errors):
        assert error <= found.interval(at)[1] * (1 + 1e-9), at


def test_without_three_checks_a_share_may_be_anything_up_to_its_group() -> None:
    found = probe([1e-3] * 10, [0] * 10, 3)
    assert not found.off
    shared = next(at for at, cost in enumerate(found.costs) if not cost.is_measured)
    assert found.interval(shared) == (0.0, math.sqrt(found.costs[shared].group_square))


_LINKED = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2,8,16] x, float[2,8,16] r, float[16] s) => (float[2,8,16] y)
{
   [add] a = Add(x, r)
   [norm] n = LayerNormalization<axis=-1>(a, s)
   [exp] y = Exp(n)
}"""


def test_operators_that_have_to_agree_are_one_unit_by_the_name_of_the_first() -> None:
    options = read_options(Request(to="fp16", target="onnxruntime-cuda", policy="aggressive"))
    judged = judge_model(open_source(onnx.parser.parse_model(_LINKED), False, None), options)[1]
    nodes, units = judged.problem.graph.nodes, units_of(judged, *options.planning.line.other_dtypes)
    found = {unit.name: [nodes[node].name for node in unit.nodes] for unit in units}
    assert found == {"add": ["add", "norm"], "exp": ["exp"]}
