"""Type signatures of ONNX Runtime's contrib operators, which the onnx package does not define.

They are in the domain com.microsoft, and in ONNX's: among them early versions of operators that
ONNX defined later. Source: the schemas that ONNX Runtime 1.31.1 and 1.32.0 register, printed by
tools/contrib_signatures.py. A row lists the type variable of each input and output, with a star if
variadic, and the element types that each variable admits.
"""

# ruff: noqa: E501  one row per operator reads better than wrapped rows

from typing import NamedTuple


class ContribRow(NamedTuple):
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    types: str

    def allowed(self) -> dict[str, frozenset[str]]:
        """Type strings that each variable admits."""
        by_variable = {}
        for clause in self.types.split("; "):
            variable, _, names = clause.partition(": ")
            by_variable[variable] = frozenset(
                n if "(" in n else f"tensor({n})" for n in names.split()
            )
        return by_variable


def _row(inputs: str, outputs: str, types: str) -> ContribRow:
    return ContribRow(tuple(inputs.split()), tuple(outputs.split()), types)


_ONNX, _OWN = "", "com.microsoft"


def home_of(domain: str, op: str) -> str | None:
    """The domain in which ONNX Runtime registers an operator, or None. Producers use either of its
    domains for its operators.
    """
    homes = (domain, _OWN if domain == _ONNX else _ONNX) if domain in (_ONNX, _OWN) else (domain,)
    return next((home for home in homes if (home, op) in CONTRIB), None)


# Operators of ONNX's domain that ONNX Runtime registers up to opset 9 only.
ENDED_AT_10 = frozenset({
    "Affine", "Crop", "DynamicSlice", "GRUUnit", "GivenTensorFill", "ImageScaler",
    "ParametricSoftplus", "Scale", "ScaledTanh",
})  # fmt: skip

# fmt: off
CONTRIB: dict[tuple[str, str], ContribRow] = {
    ("", "Affine"): _row("T", "T", "T: double float float16"),
    ("", "Crop"): _row("T", "T", "T: double float float16"),
    ("", "DisentangledAttention_TRT"): _row("T T T", "T", "T: float float16"),
    ("", "DynamicSlice"): _row("T Tind Tind Tind", "T", "T: bool complex128 complex64 double float float16 int16 int32 int64 int8 string uint16 uint32 uint64 uint8; Tind: int32 int64"),
    ("", "EfficientNMS_TRT"): _row("T T T", "tensor(int32) T T tensor(int32)", "T: float float16"),
    ("", "GRUUnit"): _row("T T T T", "T", "T: double float float16"),
    ("", "GivenTensorFill"): _row("T", "T", "T: double float float16"),
    ("", "ImageScaler"): _row("T", "T", "T: double float float16"),
    ("", "LayerNormalization"): _row("T V V", "V U U", "T: bfloat16 double float float16; U: double float; V: bfloat16 double float float16"),
    ("", "MeanVarianceNormalization"): _row("T", "T", "T: double float float16"),
    ("", "MemcpyFromHost"): _row("T", "T", "T: bfloat16 bool complex128 complex64 double float float16 float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz int16 int32 int64 int8 seq(tensor(bfloat16)) seq(tensor(bool)) seq(tensor(complex128)) seq(tensor(complex64)) seq(tensor(double)) seq(tensor(float)) seq(tensor(float16)) seq(tensor(int16)) seq(tensor(int32)) seq(tensor(int64)) seq(tensor(int8)) seq(tensor(uint16)) seq(tensor(uint32)) seq(tensor(uint64)) seq(tensor(uint8)) uint16 uint32 uint64 uint8"),
    ("", "MemcpyToHost"): _row("T", "T", "T: bfloat16 bool complex128 complex64 double float float16 float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz int16 int32 int64 int8 seq(tensor(bfloat16)) seq(tensor(bool)) seq(tensor(complex128)) seq(tensor(complex64)) seq(tensor(double)) seq(tensor(float)) seq(tensor(float16)) seq(tensor(int16)) seq(tensor(int32)) seq(tensor(int64)) seq(tensor(int8)) seq(tensor(uint16)) seq(tensor(uint32)) seq(tensor(uint64)) seq(tensor(uint8)) uint16 uint32 uint64 uint8"),
    ("", "MultilevelCropAndResize_TRT"): _row("T T T T T", "T", "T: float"),
    ("", "ParametricSoftplus"): _row("T", "T", "T: double float float16"),
    ("", "PyramidROIAlign_TRT"): _row("T T T T T", "T", "T: float"),
    ("", "Scale"): _row("T", "T", "T: double float float16"),
    ("", "ScaledTanh"): _row("T", "T", "T: double float float16"),
    ("", "SimplifiedLayerNormalization"): _row("T V", "V U", "T: bfloat16 double float float16; U: double float; V: bfloat16 double float float16"),
    ("", "ThresholdedRelu"): _row("T", "T", "T: double float float16"),
    ("com.microsoft", "Attention"): _row("T T T M T T M", "T T", "T: bfloat16 float float16; M: int32"),
    ("com.microsoft", "AttnLSTM"): _row("T T T T T1 T T T T T T T T1 T", "T T T", "T: double float; T1: int32"),
    ("com.microsoft", "BeamSearch"): _row("F I I I I T T M M I I I", "I T T", "T: float float16; F: float float16 int32; I: int32; M: int32"),
    ("com.microsoft", "BiasAdd"): _row("T T T", "T", "T: float float16"),
    ("com.microsoft", "BiasDropout"): _row("T T T T1 T2", "T T2", "T: bfloat16 double float float16; T1: bfloat16 double float float16; T2: bool"),
    ("com.microsoft", "BiasGelu"): _row("T T", "T", "T: bfloat16 double float float16"),
    ("com.microsoft", "BiasSoftmax"): _row("T T", "T", "T: double float float16"),
    ("com.microsoft", "BiasSplitGelu"): _row("T T", "T", "T: float float16"),
    ("com.microsoft", "BifurcationDetector"): _row("T T T T", "T T", "T: int64"),
    ("com.microsoft", "BitmaskBiasDropout"): _row("T T T T1 T2", "T T3", "T: bfloat16 double float float16; T1: bfloat16 double float float16; T2: bool; T3: uint32"),
    ("com.microsoft", "BitmaskDropout"): _row("T T1 T2", "T T3", "T: bfloat16 double float float16; T1: bfloat16 double float float16; T2: bool; T3: uint32"),
    ("com.microsoft", "BranchwiseRMSNorm"): _row("T M", "T", "T: bfloat16 float float16; M: bfloat16 float float16"),
    ("com.microsoft", "CDist"): _row("T T", "T", "T: double float"),
    ("com.microsoft", "CausalConvWithState"): _row("T T T T", "T T T", "T: bfloat16 float float16"),
    ("com.microsoft", "ComplexMul"): _row("T T", "T", "T: double float float16"),
    ("com.microsoft", "ComplexMulConj"): _row("T T", "T", "T: double float float16"),
    ("com.microsoft", "ConvStateReplay"): _row("T T T TI", "T", "T: float float16; TI: int64"),
    ("com.microsoft", "ConvTransposeWithDynamicPads"): _row("T T tensor(int64) T", "T", "T: double float float16"),
    ("com.microsoft", "CropAndResize"): _row("T1 T1 T2 T2", "T1", "T1: double float float16; T2: int32"),
    ("com.microsoft", "DecoderAttention"): _row("T T T T T B T T B B B B", "T T T", "T: float float16; B: bool"),
    ("com.microsoft", "DecoderMaskedMultiHeadAttention"): _row("T T T M T T T M M M T", "T T T QK", "T: float float16; QK: float float16; M: int32"),
    ("com.microsoft", "DecoderMaskedSelfAttention"): _row("T T T M T T M M M", "T T", "T: float float16; M: int32"),
    ("com.microsoft", "DequantizeBFP"): _row("T1 T2 T2", "T3", "T1: uint8; T2: int64; T3: bfloat16 float float16"),
    ("com.microsoft", "DequantizeLinear"): _row("T1 T2 T1", "T2", "T1: int16 int32 int4 int8 uint16 uint4 uint8; T2: float float16"),
    ("com.microsoft", "DequantizeWithOrder"): _row("Q S", "F", "Q: int8; F: float float16; S: float"),
    ("com.microsoft", "DynamicQuantizeLSTM"): _row("T T2 T2 T T1 T T T T T2 T T2", "T T T", "T: float; T1: int32; T2: int8 uint8"),
    ("com.microsoft", "DynamicQuantizeMatMul"): _row("T1 T2 T1 T2 T1", "T1", "T1: float; T2: int8 uint8"),
    ("com.microsoft", "DynamicSparseAttention"): _row("T T T T T T T M M M M T T tensor(int64) T T T", "T T T", "T: bfloat16 float float16; M: int32"),
    ("com.microsoft", "DynamicTimeWarping"): _row("F", "I", "F: float; I: int32"),
    ("com.microsoft", "EPContext"): _row("T*", "T*", "T: bfloat16 bool double float float16 int16 int32 int64 int8 uint16 uint32 uint64 uint8"),
    ("com.microsoft", "EmbedLayerNormalization"): _row("T1 T1 T T T T T T1 T1", "T T1 T", "T1: int32; T: float float16"),
    ("com.microsoft", "EngramGate"): _row("T T T T T T", "T T", "T: bfloat16 float float16"),
    ("com.microsoft", "ExpandDims"): _row("T tensor(int32)", "T", "T: bool complex128 complex64 double float float16 int16 int32 int64 int8 string uint16 uint32 uint64 uint8"),
    ("com.microsoft", "FastGelu"): _row("T T", "T", "T: bfloat16 double float float16"),
    ("com.microsoft", "FusedConv"): _row("T T T T", "T", "T: double float float16"),
    ("com.microsoft", "FusedGemm"): _row("T T T", "T", "T: double float float16 int32 int64 uint32 uint64"),
    ("com.microsoft", "FusedMatMul"): _row("T T", "T", "T: bfloat16 double float float16"),
    ("com.microsoft", "FusedMatMulActivation"): _row("T T", "T", "T: bfloat16 double float float16"),
    ("com.microsoft", "GatedAdd"): _row("T T T T", "T", "T: bfloat16 float float16"),
    ("com.microsoft", "GatedDeltaNet"): _row("T T T TI TS TS TS TS TS TI TI", "T TS TS", "T: bfloat16 float float16; TS: float; TI: int32"),
    ("com.microsoft", "GatedDeltaNetStateReplay"): _row("T T T TI", "T", "T: float; TI: int64"),
    ("com.microsoft", "GatedRMSNorm"): _row("T T T", "T", "T: bfloat16 float float16"),
    ("com.microsoft", "GatedRelativePositionBias"): _row("T T T T T T M", "T", "T: float float16; M: int32"),
    ("com.microsoft", "GatherBlockQuantized"): _row("T1 Tind T2 T1", "T2", "T1: float4e2m1 float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz int4 uint4 uint8; T2: bfloat16 float float16; Tind: int32 int64"),
    ("com.microsoft", "GatherND"): _row("T Tind", "T", "T: bool complex128 complex64 double float float16 int16 int32 int64 int8 string uint16 uint32 uint64 uint8; Tind: int32 int64"),
    ("com.microsoft", "GatherPacked"): _row("T1 Tind", "T2", "T1: uint8; T2: bfloat16 float float16; Tind: int32 int64"),
    ("com.microsoft", "Gelu"): _row("T", "T", "T: bfloat16 double float float16"),
    ("com.microsoft", "GemmFastGelu"): _row("T T T", "T", "T: bfloat16 float float16"),
    ("com.microsoft", "GemmFloat8"): _row("TA TB TC TS TS TS", "TR", "TA: bfloat16 float float16 float8e4m3fn float8e5m2; TB: bfloat16 float float16 float8e4m3fn float8e5m2; TC: bfloat16 float float16; TR: bfloat16 float float16 float8e4m3fn float8e5m2; TS: float"),
    ("com.microsoft", "GemmaRotaryEmbedding"): _row("U T T T T", "T T", "T: float16; U: float"),
    ("com.microsoft", "GreedySearch"): _row("I I I T I I I", "I", "T: float; I: int32"),
    ("com.microsoft", "GridSample"): _row("T1 T1", "T2", "T1: bool complex128 complex64 double float float16 int16 int32 int64 int8 string uint16 uint32 uint64 uint8; T2: double float float16"),
    ("com.microsoft", "GroupNorm"): _row("T M M", "T", "T: float float16; M: float float16"),
    ("com.microsoft", "GroupQueryAttention"): _row("T T T T_CACHE T_CACHE M M T T tensor(int64) T T T_KV_SCALE T_KV_SCALE T T M", "T T_CACHE T_CACHE T", "T: bfloat16 float float16; T_CACHE: bfloat16 float float16 float8e4m3fn int8 uint8; T_KV_SCALE: float; M: int32"),
    ("com.microsoft", "HyperConnectionLowRankMix"): _row("T T T T T T T", "T T T", "T: bfloat16 float float16"),
    ("com.microsoft", "HyperConnectionPostMix"): _row("T T M M", "T", "T: bfloat16 float float16; M: bfloat16 float float16"),
    ("com.microsoft", "HyperConnectionPreMix"): _row("T M", "T", "T: bfloat16 float float16; M: bfloat16 float float16"),
    ("com.microsoft", "Inverse"): _row("T", "T", "T: double float float16"),
    ("com.microsoft", "Irfft"): _row("T", "T", "T: double float float16"),
    ("com.microsoft", "IsAllFinite"): _row("V*", "T", "V: bfloat16 double float float16; T: bool"),
    ("com.microsoft", "LinearAttention"): _row("T T T S T T", "T S", "T: bfloat16 float float16; S: bfloat16 float float16"),
    ("com.microsoft", "LinearAttentionGate"): _row("T TF TF T", "T T", "T: bfloat16 float float16; TF: float"),
    ("com.microsoft", "LongformerAttention"): _row("T T T T T T G", "T", "T: float float16; G: int32"),
    ("com.microsoft", "MRotaryEmbedding"): _row("T M T T", "T", "T: bfloat16 float float16; M: int64"),
    ("com.microsoft", "Mamba2Verify"): _row("T T F T T F F F F I", "T T F T F", "T: bfloat16; F: float; I: int32"),
    ("com.microsoft", "MatMulBlockQuantizedFp4Weight"): _row("T T1 T2 T3 T3 T", "T", "T: bfloat16 float16; T1: uint8; T2: uint8; T3: float"),
    ("com.microsoft", "MatMulBlockQuantizedFp8Weight"): _row("T T1 T2 T2 T", "T", "T: bfloat16 float16; T1: float8e4m3fn; T2: float"),
    ("com.microsoft", "MatMulBnb4"): _row("T1 T2 T1", "T1", "T1: bfloat16 float float16; T2: uint8"),
    ("com.microsoft", "MatMulFpQ4"): _row("T1 T2 T3", "T1", "T1: float; T2: uint8; T3: int64"),
    ("com.microsoft", "MatMulInteger16"): _row("T1 T2", "T3", "T1: int16 uint16; T2: int16 uint16; T3: int32 uint32"),
    ("com.microsoft", "MatMulIntegerToFloat"): _row("T1 T2 T3 T3 T1 T2 T3", "T3", "T1: int8 uint8; T2: int8 uint8; T3: float float16"),
    ("com.microsoft", "MatMulNBits"): _row("T1 T2 T1 T3 T4 T1", "T1", "T1: bfloat16 float float16; T2: uint8; T3: bfloat16 float float16 uint8; T4: int32"),
    ("com.microsoft", "MatMulNBitsMlp"): _row("T1 T1 T1 T2 T1 T1 T2 T1 T1", "T1 T1", "T1: bfloat16 float float16; T2: uint8"),
    ("com.microsoft", "MatMulNBitsQLoRA"): _row("T TQ T TQ T TQ T", "T", "T: float float16; TQ: uint8"),
    ("com.microsoft", "MatMulNBitsQkv"): _row("T1 T1 T1 T2 T1 T1 T2 T1 T1 T2 T1 T1", "T1 T1 T1 T1", "T1: bfloat16 float float16; T2: uint8"),
    ("com.microsoft", "MatMulPacked"): _row("T1 T2 Tscale", "T1", "T1: bfloat16 float16; T2: uint8; Tscale: float"),
    ("com.microsoft", "MaxpoolWithMask"): _row("T tensor(int32)", "T", "T: float"),
    ("com.microsoft", "MoE"): _row("T T T T T T T T", "T", "T: bfloat16 float float16"),
    ("com.microsoft", "MoEGroupRouter"): _row("T TF T", "T TF TF", "T: bfloat16 float float16; TF: float"),
    ("com.microsoft", "MoEPacked"): _row("T TR T2 T2 T2 TR", "T", "T: bfloat16 float16; T2: uint8; TR: bfloat16 float float16"),
    ("com.microsoft", "MulInteger"): _row("T T T T", "T1", "T: int8 uint8; T1: int32"),
    ("com.microsoft", "MultiHeadAttention"): _row("T T T T M T T T M M", "T T T QK", "T: bfloat16 float float16; QK: bfloat16 float float16; M: int32"),
    ("com.microsoft", "MurmurHash3"): _row("T1", "T2", "T1: double float int32 int64 string uint32 uint64; T2: int32 uint32"),
    ("com.microsoft", "NGramHashMapping"): _row("M M M M M M tensor(int32)", "M M", "M: int32 int64"),
    ("com.microsoft", "NGramRepeatBlock"): _row("Tid T", "T", "Tid: int64; T: float"),
    ("com.microsoft", "NhwcConv"): _row("T T T", "T", "T: double float float16"),
    ("com.microsoft", "NhwcFusedConv"): _row("T T T T", "T", "T: float float16"),
    ("com.microsoft", "NhwcMaxPool"): _row("T", "T", "T: int8 uint8"),
    ("com.microsoft", "PackedAttention"): _row("T T T M M T", "T", "T: float float16; M: int32"),
    ("com.microsoft", "PackedMultiHeadAttention"): _row("T T T T M M T", "T", "T: float float16; M: int32"),
    ("com.microsoft", "PackedSparseAttentionIndexer"): _row("T T T T T T M M T T T I T T T M M M", "M M T T T M T", "T: bfloat16 float float16; I: int64; M: int32"),
    ("com.microsoft", "PackedSparseAttentionIndexerMerge"): _row("T T T T T T T", "T T T", "T: int32"),
    ("com.microsoft", "Pad"): _row("T tensor(int64) T", "T", "T: double float float16"),
    ("com.microsoft", "PagedAttention"): _row("T T T T_CACHE T_CACHE S S S T T S T T T T_KV_SCALE T_KV_SCALE S", "T T_CACHE T_CACHE", "T: bfloat16 float16; T_CACHE: bfloat16 float16 float8e4m3fn int8 uint8; T_KV_SCALE: float; S: int32"),
    ("com.microsoft", "QAttention"): _row("T1 T2 T3 T3 T3 T4 T1 T2 T3", "T3 T3", "T1: int8 uint8; T2: int8 uint8; T3: float float16; T4: int32"),
    ("com.microsoft", "QEmbedLayerNormalization"): _row("T1 T1 T2 T2 T2 T2 T2 T1 T T T T T T2 T2 T2 T2 T2", "T T1", "T1: int32; T2: int8 uint8; T: float"),
    ("com.microsoft", "QGemm"): _row("TA T TA TB T TB TC T TYZ", "TY", "T: float; TA: int8 uint8; TB: int8 uint8; TC: int32; TYZ: int8 uint8; TY: float int8 uint8"),
    ("com.microsoft", "QLinearAdd"): _row("T tensor(float) T T tensor(float) T tensor(float) T", "T", "T: int8 uint8"),
    ("com.microsoft", "QLinearAveragePool"): _row("T tensor(float) T tensor(float) T", "T", "T: int8 uint8"),
    ("com.microsoft", "QLinearConcat"): _row("TF T8 TV*", "T8", "T8: int8 uint8; TF: float; TV: float int8 uint8"),
    ("com.microsoft", "QLinearConv"): _row("T1 tensor(float) T1 T2 tensor(float) T2 tensor(float) T3 T4", "T3", "T1: int8 uint8; T2: int8 uint8; T3: int8 uint8; T4: int32"),
    ("com.microsoft", "QLinearGlobalAveragePool"): _row("T tensor(float) T tensor(float) T", "T", "T: int8 uint8"),
    ("com.microsoft", "QLinearLeakyRelu"): _row("T tensor(float) T tensor(float) T", "T", "T: int8 uint8"),
    ("com.microsoft", "QLinearMul"): _row("T tensor(float) T T tensor(float) T tensor(float) T", "T", "T: int8 uint8"),
    ("com.microsoft", "QLinearReduceMean"): _row("T tensor(float) T tensor(float) T", "T", "T: int8 uint8"),
    ("com.microsoft", "QLinearSigmoid"): _row("T tensor(float) T tensor(float) T", "T", "T: int8 uint8"),
    ("com.microsoft", "QLinearSoftmax"): _row("T tensor(float) T tensor(float) T", "T", "T: int8 uint8"),
    ("com.microsoft", "QLinearWhere"): _row("B T TF T T TF T TF T", "T", "B: bool; TF: float; T: int8 uint8"),
    ("com.microsoft", "QMoE"): _row("T T T1 T2 T T1 T2 T T1 T2 T T1 T1 T1 T T4 T4 T4 T4 T2 T2", "T", "T: bfloat16 float float16; T1: float8e4m3fn uint8; T2: bfloat16 float float16 float8e4m3fn float8e8m0; T4: float"),
    ("com.microsoft", "QOrderedAttention"): _row("Q S S S S Q Q Q S S S S S S S S S G Q S", "Q", "Q: int8; S: float; G: int32"),
    ("com.microsoft", "QOrderedGelu"): _row("Q S S", "Q", "Q: int8; S: float"),
    ("com.microsoft", "QOrderedLayerNormalization"): _row("Q S F F S", "Q", "F: float float16; S: float; Q: int8"),
    ("com.microsoft", "QOrderedLongformerAttention"): _row("Q S Q S S S S F Q S S S G S", "Q", "Q: int8; S: float; G: int32; F: float16"),
    ("com.microsoft", "QOrderedMatMul"): _row("Q S Q S S S Q S", "Q", "Q: int8; S: float"),
    ("com.microsoft", "QuantizeBFP"): _row("T1", "T2 T3 T3", "T1: bfloat16 float float16; T2: uint8; T3: int64"),
    ("com.microsoft", "QuantizeLinear"): _row("T1 T1 T2", "T2", "T1: float float16; T2: int16 int4 int8 uint16 uint4 uint8"),
    ("com.microsoft", "QuantizeWithOrder"): _row("F S", "Q", "Q: int8; F: float float16; S: float"),
    ("com.microsoft", "QuickGelu"): _row("T", "T", "T: bfloat16 double float float16"),
    ("com.microsoft", "RMSNormRotary"): _row("T F I TCos TCos TI", "TOut F", "T: bfloat16 float16; TCos: bfloat16 float; TOut: bfloat16 float16; F: float; I: int64; TI: int32"),
    ("com.microsoft", "Range"): _row("T T T", "T", "T: double float int16 int32 int64"),
    ("com.microsoft", "ReduceSumInteger"): _row("T1", "T2", "T1: int8 uint8; T2: int32 uint32"),
    ("com.microsoft", "RelativePositionBias"): _row("T U U", "T", "T: float float16; U: int64"),
    ("com.microsoft", "RemovePadding"): _row("T M", "T M M M", "T: float float16; M: int32"),
    ("com.microsoft", "RestorePadding"): _row("T M", "T", "T: float float16; M: int32"),
    ("com.microsoft", "Rfft"): _row("T", "T", "T: double float float16"),
    ("com.microsoft", "RotaryEmbedding"): _row("T M T T", "T", "T: bfloat16 float float16; M: int64"),
    ("com.microsoft", "RouterGateUpProj"): _row("T T", "T T", "T: bfloat16 float16"),
    ("com.microsoft", "SampleOp"): _row("T", "T", "T: double float float16 int32 int64 uint32 uint64"),
    ("com.microsoft", "Sampling"): _row("I I I T I I I I I", "I T", "T: float; I: int32"),
    ("com.microsoft", "ScaledSiLU"): _row("T M", "T", "T: bfloat16 float float16; M: bfloat16 float float16"),
    ("com.microsoft", "SkipGroupNorm"): _row("T M M T T", "T T", "T: float float16; M: float float16"),
    ("com.microsoft", "SkipLayerNormalization"): _row("T T T T T", "T U U T", "T: bfloat16 float float16; U: float"),
    ("com.microsoft", "SkipSimplifiedLayerNormalization"): _row("T T T T", "T U U T", "T: bfloat16 float float16; U: float"),
    ("com.microsoft", "Snpe"): _row("T*", "T*", "T: float uint16 uint8"),
    ("com.microsoft", "SparseAttention"): _row("T T T T T M M M M T T", "T T T", "T: bfloat16 float float16; M: int32"),
    ("com.microsoft", "SparseAttentionIndexer"): _row("T T T T T T TB T T T T I M T", "M T T", "T: bfloat16 float float16; TB: int64; I: int64; M: int32"),
    ("com.microsoft", "SparsePagedAttention"): _row("T T T T_CACHE T_CACHE S S S S S S T T S T T T T T T_KV_SCALE T_KV_SCALE S", "T T_CACHE T_CACHE", "T: bfloat16 float16; T_CACHE: bfloat16 float16 int8; T_KV_SCALE: float; S: int32"),
    ("com.microsoft", "SparseToDenseMatMul"): _row("T T1", "T1", "T: sparse_tensor(double) sparse_tensor(float) sparse_tensor(int32) sparse_tensor(int64) sparse_tensor(uint32) sparse_tensor(uint64); T1: double float int32 int64 uint32 uint64"),
    ("com.microsoft", "SpeculativePrefixCommit"): _row("I64 I64 I32 I64 I64 I64 I64", "I32 I64 I64", "I64: int64; I32: int32"),
    ("com.microsoft", "SwiGLU"): _row("T T", "T", "T: bfloat16 float float16"),
    ("com.microsoft", "Tokenizer"): _row("T", "T", "T: string"),
    ("com.microsoft", "TorchEmbedding"): _row("T tensor(int64) tensor(int64) tensor(bool)", "T", "T: bfloat16 double float float16 int16 int32 int64 int8 uint16 uint32 uint64 uint8"),
    ("com.microsoft", "TransposeMatMul"): _row("T T", "T", "T: bfloat16 double float float16"),
    ("com.microsoft", "Trilu"): _row("T tensor(int64)", "T", "T: bfloat16 bool double float float16 int16 int32 int64 int8 uint16 uint32 uint64 uint8"),
    ("com.microsoft", "UnfoldTensor"): _row("T", "T", "T: bfloat16 bool complex128 complex64 double float float16 int16 int32 int64 int8 string uint16 uint32 uint64 uint8"),
    ("com.microsoft", "Unique"): _row("T", "T tensor(int64) tensor(int64)", "T: bool complex128 complex64 double float float16 int16 int32 int64 int8 string uint16 uint32 uint64 uint8"),
    ("com.microsoft", "VarlenCausalConvWithState"): _row("T T M T T M T T", "T T T", "T: bfloat16 float float16; M: int32"),
    ("com.microsoft", "VarlenNGramHashMapping"): _row("M M M S M M M tensor(int32) S S", "M M S M", "M: int32 int64; S: int32"),
    ("com.microsoft", "WhisperBeamSearch"): _row("F I I I I T T M M I I I I I T", "I T T V T", "T: float float16; F: float float16 int32; I: int32; M: int32; V: float"),
    ("com.microsoft", "WordConvEmbedding"): _row("T T1 T1 T1", "T1", "T: int32; T1: float"),
}
# fmt: on
