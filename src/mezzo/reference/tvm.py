"""TVM's mixed-precision pass: its default operator lists, and colouring in one forward pass, the
strategy `forward`.

Source: Apache TVM 0.18, Relay, python/tvm/relay/transform/mixed_precision.py, one list for every
format. Allow is its always list, infer its follow list, deny its never list. Unlisted operators
follow, with a warning.

Operators correspond to what Relay's ONNX importer builds from them, and take the strictest category
of the parts. So Elu, Softplus and Mish, which contain an exp, are denied, and so is Gelu, which
contains an erf, unless it is approximated by tanh. LSTM is dense; ReduceL2 is a sum, LpPool a
power, GlobalAveragePool and ReduceMean are long sums, but AveragePool follows. Einsum, LogSoftmax,
Cosh and GroupNormalization are unlisted and follow. Operators that only Relax has go as there:
Attention is allowed (Relax, src/relax/op/nn/attention.cc). RMSNormalization goes with layer_norm,
windows with arange. Clip is denied if a bound exceeds the format's range. Quantized operators are
left unchanged.

Forward colouring (TVM RFC 0001, "AMP pass"): one pass from inputs to outputs. Green (allow)
converts; gray (infer, clear) runs low if all its float inputs are low already; red (deny) casts
back. Graph inputs are FP32, so gray operators alone never start a conversion.
"""

from collections.abc import Sequence, Set
from typing import ClassVar

from mezzo.contracts.coloring import ColouringStrategy, makers, makes_low, settle, start
from mezzo.contracts.problem import Choice, Split
from mezzo.formats.dtypes import FORMATS, DType
from mezzo.ir.nodes import Node
from mezzo.ir.selectors import ByAttribute, ByFunction, Site
from mezzo.tables import oplists
from mezzo.tables.oplists import names
from mezzo.tables.policy import GRANTED, Category, Missing, Policy, rule

_ALWAYS = oplists.FUSED_LINEAR | names(
    "Attention CausalConvWithState Conv ConvTranspose GRU Gemm LSTM MatMul RNN"
)
_NEVER = (
    (oplists.SUMS - names("CumSum"))
    | oplists.EXPONENTIAL_UNITS
    | oplists.FOREIGN
    | oplists.LOSSES
    | oplists.POSITIONS
    | oplists.QUANTIZED
    | names(
        "Erf Exp Gelu GlobalAveragePool LayerNormalization LpNormalization"
        " MeanVarianceNormalization Mish Pow",
        "RMSNormalization ReduceMean SimplifiedLayerNormalization Softmax",
        "com.microsoft:BiasGelu com.microsoft:EmbedLayerNormalization"
        " com.microsoft:SkipLayerNormalization",
        "com.microsoft:SkipSimplifiedLayerNormalization",
    )
)
_FOLLOW = oplists.DOMAIN - _ALWAYS - _NEVER


def _clips_past(low: DType, site: Site) -> bool:
    """Whether a bound of a Clip exceeds the format's range: an operand, or an attribute before
    opset 11.
    """
    limit = FORMATS[low].max_finite
    written = [site.attribute("min"), site.attribute("max")]
    constants = [facts for facts in (site.constant(1), site.constant(2)) if facts is not None]
    return any(isinstance(bound, float) and abs(bound) > limit for bound in written) or any(
        facts.largest > limit or facts.has_infinity for facts in constants
    )


def _clips_past_f16(site: Site) -> bool:
    return _clips_past(DType.FLOAT16, site)


def _clips_past_bf16(site: Site) -> bool:
    return _clips_past(DType.BFLOAT16, site)


_CLIP = "clips at a bound past the format's range"

POLICY = Policy(
    name="tvm",
    also=(
        "amp",
        "relay",
        "tomixedprecision",
    ),
    summary="the lists of TVM's Relay: linear work low, exp, powers and long sums f32",
    rules=(
        rule("always", Category.ALLOW, "is in TVM's always list", ops=_ALWAYS, worth=GRANTED),
        rule("follow", Category.INFER, "is in TVM's follow list, or in none", ops=_FOLLOW),
        rule("never", Category.DENY, "is in TVM's never list", ops=_NEVER),
        rule(
            "gelu-by-tanh",
            Category.INFER,
            "holds a tanh and no erf, so it follows",
            ops=("Gelu",),
            where=(ByAttribute("approximate", ("tanh",)),),
        ),
        rule(
            "clip",
            Category.DENY,
            _CLIP,
            ops=("Clip",),
            where=(ByFunction(_clips_past_f16),),
            formats=(DType.FLOAT16,),
        ),
        rule(
            "clip",
            Category.DENY,
            _CLIP,
            ops=("Clip",),
            where=(ByFunction(_clips_past_bf16),),
            formats=(DType.BFLOAT16,),
        ),
    ),
    findings=frozenset(),
    otherwise=Category.INFER,
    promotes_untroubled=False,
    unlisted=Category.INFER,
    missing=Missing.WARN,
)


class Forward(ColouringStrategy):
    name: ClassVar[str] = "forward"
    summary: ClassVar[str] = (
        "post-order colouring: allow converts, infer follows low inputs, deny goes back (TVM)"
    )
    because: ClassVar[str] = "what infers goes with what it reads"

    def colour(self, split: Split) -> Sequence[bool]:
        allowed = {split.linked[number] for number, is_low in enumerate(start(split)) if is_low}

        def walk(demoted: Set[int]) -> list[bool]:
            is_low = start(split)
            for node in split.graph.nodes:
                if split.choices[node.id] is Choice.FREE and node.id not in demoted:
                    is_low[node.id] = split.linked[node.id] in allowed or _follows(
                        split, is_low, node
                    )
            return is_low

        return settle(split, walk)


def _follows(split: Split, is_low: Sequence[bool], node: Node) -> bool:
    if split.categories[node.id] is Category.ALLOW:
        return True
    operands = [
        makes_low(split, is_low, value) for value, maker in makers(split, node) if maker is not None
    ]
    return bool(operands) and all(operands)
