"""Quantization: float operands are scales or values to quantize; the arithmetic is in integers."""

from collections.abc import Mapping

from mezzo.tables.facts import Cost, OpFacts, Risk, facts

SOURCE = (
    "PyTorch 2.13 aten/src/ATen/native/native_functions.yaml and documentation,"
    " torch.ao.quantization"
)

FACTS: tuple[OpFacts, ...] = (
    facts("_dyn_quant_matmul_4bit", Cost.QUANTIZE, Risk.QUANTIZED, like="MatMulInteger"),
    facts("_dyn_quant_pack_4bit_weight", Cost.QUANTIZE, Risk.QUANTIZED, like="QuantizeLinear"),
    facts(
        "_fake_quantize_learnable_per_channel_affine",
        Cost.QUANTIZE,
        Risk.QUANTIZED,
        like="QuantizeLinear",
    ),
    facts(
        "_fake_quantize_learnable_per_tensor_affine",
        Cost.QUANTIZE,
        Risk.QUANTIZED,
        like="QuantizeLinear",
    ),
    facts(
        "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
        Cost.QUANTIZE,
        Risk.QUANTIZED,
        like="QuantizeLinear",
    ),
    facts(
        "_fused_moving_avg_obs_fq_helper_functional",
        Cost.QUANTIZE,
        Risk.QUANTIZED,
        like="QuantizeLinear",
    ),
    facts("_scaled_grouped_mm", Cost.QUANTIZE, Risk.QUANTIZED, like="MatMulInteger"),
    facts("_scaled_mm", Cost.QUANTIZE, Risk.QUANTIZED, like="MatMulInteger"),
    facts("_scaled_mm_v2", Cost.QUANTIZE, Risk.QUANTIZED, like="MatMulInteger"),
    facts("_weight_int4pack_mm", Cost.QUANTIZE, Risk.QUANTIZED, like="MatMulInteger"),
    facts("_weight_int4pack_mm_for_cpu", Cost.QUANTIZE, Risk.QUANTIZED, like="MatMulInteger"),
    facts("_weight_int8pack_mm", Cost.QUANTIZE, Risk.QUANTIZED, like="MatMulInteger"),
    facts("dequantize", Cost.QUANTIZE, Risk.QUANTIZED, like="DequantizeLinear"),
    facts("fake_quantize_per_channel_affine", Cost.QUANTIZE, Risk.QUANTIZED, like="QuantizeLinear"),
    facts(
        "fake_quantize_per_channel_affine_cachemask",
        Cost.QUANTIZE,
        Risk.QUANTIZED,
        like="QuantizeLinear",
    ),
    facts("fake_quantize_per_tensor_affine", Cost.QUANTIZE, Risk.QUANTIZED, like="QuantizeLinear"),
    facts(
        "fake_quantize_per_tensor_affine_cachemask",
        Cost.QUANTIZE,
        Risk.QUANTIZED,
        like="QuantizeLinear",
    ),
    facts("quantize_per_channel", Cost.QUANTIZE, Risk.QUANTIZED, like="QuantizeLinear"),
    facts("quantize_per_tensor", Cost.QUANTIZE, Risk.QUANTIZED, like="QuantizeLinear"),
)

# Operators with all facts of the ONNX operator named.
EQUIVALENTS: Mapping[str, str] = {
    "_int_mm": "MatMulInteger",
}
