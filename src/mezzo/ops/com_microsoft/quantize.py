"""Quantized operators. Where only the weights are quantized, the activations are floats and the work is linear.

A scale that shares the activations' type is still no data: rounding it scales a whole block of weights.
"""

from mezzo.core.facts import Cost, OpFacts, Risk, Transfer, facts

SOURCE = "ONNX Runtime 1.32 operator schemas, domain com.microsoft"

FACTS: tuple[OpFacts, ...] = (
    facts("DequantizeBFP", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("DequantizeLinear", Cost.QUANTIZE, Risk.QUANTIZED, transfer=Transfer.DEQUANTIZE),
    facts("DequantizeWithOrder", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("DynamicQuantizeLSTM", Cost.QUANTIZE, Risk.QUANTIZED, Risk.RECURSION),
    facts("DynamicQuantizeMatMul", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("GatherBlockQuantized", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("GatherPacked", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("GemmFloat8", Cost.LINEAR, Risk.QUANTIZED),
    facts("MatMulBlockQuantizedFp4Weight", Cost.LINEAR, Risk.QUANTIZED),
    facts("MatMulBlockQuantizedFp8Weight", Cost.LINEAR, Risk.QUANTIZED),
    facts("MatMulBnb4", Cost.LINEAR, Risk.QUANTIZED),
    facts("MatMulFpQ4", Cost.LINEAR, Risk.QUANTIZED),
    facts("MatMulInteger16", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("MatMulIntegerToFloat", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("MatMulNBits", Cost.LINEAR, Risk.QUANTIZED),
    # The two fusions take an RMS normalization, and the residual sum before it, in as well.
    facts("MatMulNBitsMlp", Cost.LINEAR, Risk.QUANTIZED, Risk.SUM_OF_SQUARES),
    facts("MatMulNBitsQLoRA", Cost.LINEAR, Risk.QUANTIZED),
    facts("MatMulNBitsQkv", Cost.LINEAR, Risk.QUANTIZED, Risk.SUM_OF_SQUARES),
    facts("MatMulPacked", Cost.LINEAR, Risk.QUANTIZED),
    facts("MoEPacked", Cost.LINEAR, Risk.QUANTIZED, Risk.STEP),
    facts("MulInteger", Cost.QUANTIZE, Risk.QUANTIZED),
    # Integers only.
    facts("NhwcMaxPool", Cost.QUANTIZE, Risk.QUANTIZED, keeps_values=True),
    facts("QAttention", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("QEmbedLayerNormalization", Cost.QUANTIZE, Risk.QUANTIZED, Risk.STATISTICS, is_bounded=True),
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
    facts("QMoE", Cost.LINEAR, Risk.QUANTIZED, Risk.STEP),
    facts("QOrderedAttention", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("QOrderedGelu", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("QOrderedLayerNormalization", Cost.QUANTIZE, Risk.QUANTIZED, Risk.STATISTICS, is_bounded=True),
    facts("QOrderedLongformerAttention", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("QOrderedMatMul", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("QuantizeBFP", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("QuantizeLinear", Cost.QUANTIZE, Risk.QUANTIZED, transfer=Transfer.QUANTIZE),
    facts("QuantizeWithOrder", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("ReduceSumInteger", Cost.QUANTIZE, Risk.QUANTIZED, Risk.SUM),
)
