"""Quantization: float operands are scales or values to quantize; the arithmetic is in integers."""

from mezzo.tables.facts import Cost, OpFacts, Risk, Transfer, facts

SOURCE = "ONNX 1.23 operator documentation, opsets 10 to 28"

FACTS: tuple[OpFacts, ...] = (
    facts("ConvInteger", Cost.QUANTIZE, Risk.QUANTIZED, transfer=Transfer.QUANTIZED_SUM),
    facts("DequantizeLinear", Cost.QUANTIZE, Risk.QUANTIZED, transfer=Transfer.DEQUANTIZE),
    facts("DynamicQuantizeLinear", Cost.QUANTIZE, Risk.QUANTIZED, transfer=Transfer.QUANTIZE),
    facts("MatMulInteger", Cost.QUANTIZE, Risk.QUANTIZED, transfer=Transfer.QUANTIZED_SUM),
    facts("QLinearConv", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("QLinearMatMul", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("QuantizeLinear", Cost.QUANTIZE, Risk.QUANTIZED, transfer=Transfer.QUANTIZE),
)
