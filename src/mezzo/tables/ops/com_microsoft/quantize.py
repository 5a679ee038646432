"""Quantized operators. With weight-only quantization the activations are floats and the work is
linear.

Scales of packed weights have the activations' type. Rounding a scale changes its block by less than
rounding the weights would, so scales are no risk within the format's range.
"""

from mezzo.tables.facts import Cost, OpFacts, Risk, Transfer, facts

SOURCE = "ONNX Runtime 1.32 operator schemas, domain com.microsoft"

FACTS: tuple[OpFacts, ...] = (
    facts("DequantizeBFP", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("DequantizeLinear", Cost.QUANTIZE, Risk.QUANTIZED, transfer=Transfer.DEQUANTIZE),
    facts("DequantizeWithOrder", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("DynamicQuantizeLSTM", Cost.QUANTIZE, Risk.QUANTIZED, Risk.RECURSION),
    facts("DynamicQuantizeMatMul", Cost.QUANTIZE, Risk.QUANTIZED),
    # Rows of a table of packed numbers, each multiplied by its block's scale.
    facts("GatherBlockQuantized", Cost.POINTWISE),
    facts("GatherPacked", Cost.POINTWISE),
    facts("GemmFloat8", Cost.LINEAR, Risk.QUANTIZED),
    facts("MatMulBlockQuantizedFp4Weight", Cost.LINEAR),
    facts("MatMulBlockQuantizedFp8Weight", Cost.LINEAR),
    facts("MatMulBnb4", Cost.LINEAR),
    facts("MatMulFpQ4", Cost.LINEAR),
    facts("MatMulInteger16", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("MatMulIntegerToFloat", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("MatMulNBits", Cost.LINEAR),
    # The two fusions take an RMS normalization, and the residual sum before it, in as well.
    facts("MatMulNBitsMlp", Cost.LINEAR, Risk.SUM_OF_SQUARES),
    facts("MatMulNBitsQLoRA", Cost.LINEAR),
    facts("MatMulNBitsQkv", Cost.LINEAR, Risk.SUM_OF_SQUARES),
    facts("MatMulPacked", Cost.LINEAR),
    facts("MoEPacked", Cost.LINEAR, Risk.STEP),
    facts("MulInteger", Cost.QUANTIZE, Risk.QUANTIZED),
    # Integers only.
    facts("NhwcMaxPool", Cost.QUANTIZE, Risk.QUANTIZED, keeps_values=True),
    facts("QAttention", Cost.QUANTIZE, Risk.QUANTIZED),
    facts(
        "QEmbedLayerNormalization", Cost.QUANTIZE, Risk.QUANTIZED, Risk.STATISTICS, is_bounded=True
    ),
    facts("QGemm", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("QLinearAdd", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("QLinearAveragePool", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("QLinearConcat", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("QLinearConv", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("QLinearGlobalAveragePool", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("QLinearLeakyRelu", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("QLinearMul", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("QLinearReduceMean", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("QLinearSigmoid", Cost.QUANTIZE, Risk.QUANTIZED, is_bounded=True),
    facts("QLinearSoftmax", Cost.QUANTIZE, Risk.QUANTIZED, is_bounded=True),
    facts("QLinearWhere", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("QMoE", Cost.LINEAR, Risk.STEP),
    facts("QOrderedAttention", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("QOrderedGelu", Cost.QUANTIZE, Risk.QUANTIZED),
    facts(
        "QOrderedLayerNormalization",
        Cost.QUANTIZE,
        Risk.QUANTIZED,
        Risk.STATISTICS,
        is_bounded=True,
    ),
    facts("QOrderedLongformerAttention", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("QOrderedMatMul", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("QuantizeBFP", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("QuantizeLinear", Cost.QUANTIZE, Risk.QUANTIZED, transfer=Transfer.QUANTIZE),
    facts("QuantizeWithOrder", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("ReduceSumInteger", Cost.QUANTIZE, Risk.QUANTIZED, Risk.SUM),
)
