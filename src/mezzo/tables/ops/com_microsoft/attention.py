"""Attention as one operator, with a safe softmax and FP32 accumulation inside, so no risk."""

from mezzo.tables.facts import Cost, OpFacts, Risk, Transfer, facts

SOURCE = "ONNX Runtime 1.32 operator schemas, domain com.microsoft; Dao 2023 (arXiv:2307.08691)"

FACTS: tuple[OpFacts, ...] = (
    facts("Attention", Cost.ATTENTION),
    facts("DecoderAttention", Cost.ATTENTION),
    facts("DecoderMaskedMultiHeadAttention", Cost.ATTENTION),
    facts("DecoderMaskedSelfAttention", Cost.ATTENTION),
    facts("DynamicSparseAttention", Cost.ATTENTION),
    # A position bias of attention scores: a small product, two sigmoids, a multiplication.
    facts("GatedRelativePositionBias", Cost.LINEAR),
    facts("GroupQueryAttention", Cost.ATTENTION, transfer=Transfer.ATTENTION),
    facts("LongformerAttention", Cost.ATTENTION),
    facts("MultiHeadAttention", Cost.ATTENTION, transfer=Transfer.ATTENTION),
    facts("PackedAttention", Cost.ATTENTION),
    facts("PackedMultiHeadAttention", Cost.ATTENTION),
    # The indexers give the indices of the best keys.
    facts("PackedSparseAttentionIndexer", Cost.ATTENTION, Risk.STEP),
    # Integers only.
    facts("PackedSparseAttentionIndexerMerge", Cost.OTHER),
    facts("PagedAttention", Cost.ATTENTION),
    facts("SparseAttention", Cost.ATTENTION),
    facts("SparseAttentionIndexer", Cost.ATTENTION, Risk.STEP),
    facts("SparsePagedAttention", Cost.ATTENTION),
)
