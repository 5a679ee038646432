"""Quantization: its float operands are scales or what is to be scaled, and its arithmetic is in integers."""

from mezzo.facts import Cost, OpFacts, Risk, facts

SOURCE = "ONNX 1.23 operator documentation, opsets 10 to 28"

FACTS: tuple[OpFacts, ...] = (
    facts("ConvInteger", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("DequantizeLinear", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("DynamicQuantizeLinear", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("MatMulInteger", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("QLinearConv", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("QLinearMatMul", Cost.QUANTIZE, Risk.QUANTIZED),
    facts("QuantizeLinear", Cost.QUANTIZE, Risk.QUANTIZED),
)
