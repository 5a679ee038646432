"""PyTorch's autocast: its operator lists, coloured by the strategy `forward`.

Source: PyTorch 2.13, aten/src/ATen/autocast_mode.h (FP16: the lists of CUDA) and autocast_mode.cpp
(BF16: the lists of the CPU), listed under "Autocast Op Reference" in docs/source/amp.md; the RNNs
of cuDNN are in ATen/cudnn/AutocastRNN.cpp. Operators of torchvision are in
torchvision/csrc/ops/autocast. Allow is what runs in the low type, deny what runs in FP32. What
promotes to the widest operand type infers; so does what autocast does not list, which runs in the
type of its operands and widens by PyTorch's own rules. `forward` decides the same way.

ATen operators go by their own names; what a listed operator consists of, its gradients and its
aliases go with their equivalent of ONNX. ONNX operators go with what PyTorch computes them with,
and take the strictest category of the parts: LRN, LpPool and ReduceSumSquare contain a pow,
LpNormalization and ReduceL2 a norm, SoftmaxCrossEntropyLoss a log_softmax. LRN also contains an
average over three dimensions, which is FP32 on a CPU. AffineGrid and recurrent operators are
products; so are LinearAttention and CausalConvWithState, which PyTorch lacks. DeformConv,
MaxRoiPool, NonMaxSuppression and RoiAlign are torchvision's. Operators that draw or count without a
float operand make FP32, their default type. Quantized operators are left unchanged.

Two differences. A weight decides nothing here; autocast's FP32 parameter widens an operator that it
does not list, as in an Add of a bias outside its linear layer. binary_cross_entropy, which autocast
refuses in FP16, runs in FP32.
"""

from mezzo.formats.dtypes import DType
from mezzo.ir.selectors import ByAttribute, ByShape
from mezzo.tables import oplists
from mezzo.tables.oplists import names
from mezzo.tables.policy import GRANTED, Category, Missing, Policy, Rule, rule

_F16, _BF16 = (DType.FLOAT16,), (DType.BFLOAT16,)


def _aten(*texts: str) -> frozenset[str]:
    """Parse names of ATen operators."""
    return frozenset(f"aten:{name}" for name in names(*texts))


# The lists as they are in PyTorch. Overloads of a name are in one list.
CUDA_LOW = _aten(
    "_convolution _scaled_dot_product_flash_attention _thnn_fused_gru_cell _thnn_fused_lstm_cell",
    "addbmm addmm addmv addr baddbmm bmm chain_matmul conv1d conv2d conv3d conv_tbc",
    "conv_transpose1d conv_transpose2d conv_transpose3d convolution cudnn_convolution",
    "cudnn_convolution_transpose einsum gru_cell linalg_multi_dot linalg_vecdot linear lstm_cell",
    "matmul mm mv prelu rnn_relu_cell rnn_tanh_cell scaled_dot_product_attention",
)
CUDA_FP32 = _aten(
    "_upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact1d",
    "_upsample_nearest_exact2d _upsample_nearest_exact3d acos asin",
    "binary_cross_entropy_with_logits cdist cosh cosine_embedding_loss cosine_similarity cumprod",
    "cumsum dist erfinv exp expm1 frobenius_norm group_norm hinge_embedding_loss huber_loss",
    "kl_div l1_loss layer_norm linalg_matrix_norm linalg_vector_norm log log10 log1p log2",
    "log_softmax logsumexp margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss",
    "native_layer_norm nll_loss nll_loss2d norm nuclear_norm pdist poisson_nll_loss pow prod",
    "reciprocal renorm rms_norm rsqrt sinh smooth_l1_loss soft_margin_loss softmax softplus sum",
    "tan triplet_margin_loss upsample_bicubic2d upsample_bilinear2d upsample_linear1d",
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d",
)
CUDA_WIDEST = _aten(
    "addcdiv addcmul atan2 bilinear cross dot grid_sampler index_put scatter_add tensordot vdot",
)
CPU_LOW = _aten(
    "_addmm_activation _convolution _native_multi_head_attention addbmm addmm baddbmm bmm conv1d",
    "conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d linalg_vecdot",
    "linear matmul mkldnn_rnn_layer mm prelu scaled_dot_product_attention",
)
CPU_FP32 = _aten(
    "_grid_sampler_2d_cpu_fallback _lu_with_info adaptive_avg_pool3d adaptive_max_pool3d",
    "avg_pool3d binary_cross_entropy binary_cross_entropy_with_logits cdist cholesky",
    "cholesky_inverse cholesky_solve cosine_embedding_loss cross_entropy_loss ctc_loss",
    "fake_quantize_per_tensor_affine fft_fft fft_fft2 fft_fftn fft_hfft fft_ifft fft_ifft2",
    "fft_ifftn fft_ihfft fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn",
    "fractional_max_pool2d fractional_max_pool3d geqrf grid_sampler grid_sampler_2d",
    "grid_sampler_3d hinge_embedding_loss huber_loss inverse kl_div l1_loss linalg_cholesky",
    "linalg_cholesky_ex linalg_cond linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh",
    "linalg_householder_product linalg_inv linalg_inv_ex linalg_lstsq linalg_matrix_rank",
    "linalg_qr linalg_solve linalg_svd linalg_svdvals linalg_tensorinv linalg_tensorsolve",
    "lu_solve margin_ranking_loss max_pool3d max_unpool2d max_unpool3d mse_loss multi_margin_loss",
    "multilabel_margin_loss multilabel_margin_loss_forward nanquantile nll_loss nll_loss2d orgqr",
    "ormqr pinverse poisson_nll_loss polar prod qr quantile reflection_pad1d reflection_pad2d",
    "replication_pad1d replication_pad2d replication_pad3d smooth_l1_loss soft_margin_loss stft",
    "svd trace triangular_solve triplet_margin_loss view_as_complex",
)
CPU_WIDEST = _aten("cat index_copy stack")

# Parts and gradients of listed operators whose equivalent of ONNX is in another list.
_CUDA_FP32_PARTS = _aten("special_erfinv")
_CPU_FP32_PARTS = _aten(
    "_adaptive_avg_pool3d _adaptive_avg_pool3d_backward adaptive_max_pool3d_backward",
    "avg_pool3d_backward fractional_max_pool2d_backward fractional_max_pool3d_backward",
    "max_pool3d_with_indices max_pool3d_with_indices_backward reflection_pad1d_backward",
    "reflection_pad2d_backward replication_pad1d_backward replication_pad2d_backward",
    "replication_pad3d_backward",
)
# In no list, though their equivalent of ONNX is in one of the low type or of FP32.
_CUDA_UNLISTED = _aten(
    "_cudnn_ctc_loss _ctc_loss _ctc_loss_backward _embedding_bag _embedding_bag_backward",
    "_embedding_bag_dense_backward _embedding_bag_forward_only",
    "_embedding_bag_per_sample_weights_backward _grouped_mm _trilinear _weight_norm",
    "_weight_norm_differentiable_backward _weight_norm_interface _weight_norm_interface_backward",
    "ctc_loss cumulative_trapezoid embedding_backward embedding_bag embedding_dense_backward exp2",
    "histc log_sigmoid log_sigmoid_backward log_sigmoid_forward logaddexp logaddexp2 logcumsumexp",
    "logit logit_backward nansum segment_reduce special_entr special_exp2 special_log_ndtr",
    "special_logit special_xlog1py special_xlogy trace trapezoid trapz xlogy",
)
_CPU_UNLISTED = _aten("_grouped_mm _trilinear addmv addr bilinear dot mv vdot")

_PRODUCTS = (
    (oplists.LINEAR - names("DeformConv"))
    | oplists.FUSED_LINEAR
    | oplists.ATTENTION
    | oplists.RECURRENT
    | names(
        "AffineGrid PRelu",
        "com.microsoft:DecoderAttention com.microsoft:DecoderMaskedMultiHeadAttention"
        " com.microsoft:DecoderMaskedSelfAttention",
        "com.microsoft:GemmFastGelu com.microsoft:GroupQueryAttention"
        " com.microsoft:LongformerAttention com.microsoft:MultiHeadAttention",
        "com.microsoft:PackedAttention com.microsoft:PackedMultiHeadAttention"
        " com.microsoft:PagedAttention com.microsoft:SparseAttention",
    )
)
_TORCHVISION = names("DeformConv MaxRoiPool NonMaxSuppression RoiAlign")
_MADE_HIGH = oplists.POSITIONS | names("RandomNormal RandomUniform")
_LEFT_ALONE = oplists.FOREIGN | oplists.QUANTIZED

_FP32_F16 = (
    oplists.EXPONENTIALS
    | oplists.LOSSES
    | oplists.SOFTMAX
    | oplists.SUMS
    | names(
        "Acos Asin CumProd GroupNormalization LRN LayerNormalization Log LpNormalization Pow"
        " RMSNormalization",
        "Reciprocal ReduceProd Resize SimplifiedLayerNormalization Softplus Tan Upsample",
        "com.microsoft:BiasSoftmax com.microsoft:CDist com.microsoft:EmbedLayerNormalization"
        " com.microsoft:GroupNorm",
        "com.microsoft:SkipGroupNorm com.microsoft:SkipLayerNormalization"
        " com.microsoft:SkipSimplifiedLayerNormalization",
    )
)
_FP32_BF16 = (
    oplists.LOSSES
    | oplists.SPECTRA
    | names("GridSample LRN MaxUnpool ReduceProd com.microsoft:CDist")
)
_WIDEST_F16 = names("GridSample ScatterElements ScatterND")
_WIDEST_BF16 = names("Concat ConcatFromSequence")
_KEPT = _TORCHVISION | _MADE_HIGH | _LEFT_ALONE
_UNLISTED_F16 = oplists.DOMAIN - _PRODUCTS - _FP32_F16 - _WIDEST_F16 - _KEPT
_UNLISTED_BF16 = oplists.DOMAIN - _PRODUCTS - _FP32_BF16 - _WIDEST_BF16 - _KEPT

_LOW = "autocast runs it in the low type"
_FP32 = "autocast runs it in FP32"
_WIDEST = "autocast promotes it to its widest operand"
_UNLISTED = "is in no list of autocast, so it follows its operands"


def _rules(
    low: frozenset[str],
    fp32: frozenset[str],
    widest: frozenset[str],
    unlisted: frozenset[str],
    formats: tuple[DType, ...],
) -> tuple[Rule, ...]:
    """The lists of a format."""
    return (
        rule("low", Category.ALLOW, _LOW, ops=low, formats=formats, worth=GRANTED),
        rule("fp32", Category.DENY, _FP32, ops=fp32, formats=formats),
        rule("widest", Category.INFER, _WIDEST, ops=widest, formats=formats),
        rule("as-operands", Category.INFER, _UNLISTED, ops=unlisted, formats=formats),
    )


POLICY = Policy(
    name="autocast",
    also=(
        "amp",
        "pytorch",
        "torch",
        "torch-amp",
        "torch-autocast",
    ),
    summary="the lists of PyTorch's autocast: fp16 as on CUDA, bf16 as on a CPU",
    rules=(
        # The names of ATen come first, as an equivalent of ONNX may be in another list.
        *_rules(CUDA_LOW, CUDA_FP32 | _CUDA_FP32_PARTS, CUDA_WIDEST, _CUDA_UNLISTED, _F16),
        *_rules(CPU_LOW, CPU_FP32 | _CPU_FP32_PARTS, CPU_WIDEST, _CPU_UNLISTED, _BF16),
        *_rules(_PRODUCTS, _FP32_F16, _WIDEST_F16, _UNLISTED_F16, _F16),
        *_rules(_PRODUCTS, _FP32_BF16, _WIDEST_BF16, _UNLISTED_BF16, _BF16),
        rule("torchvision", Category.DENY, "torchvision casts it to FP32", ops=_TORCHVISION),
        rule("made-high", Category.DENY, "has no operand and makes FP32", ops=_MADE_HIGH),
        rule(
            "left-alone",
            Category.DENY,
            "reads bits, text or quantization parameters",
            ops=_LEFT_ALONE,
        ),
        rule(
            "pool-3d",
            Category.DENY,
            "pools over three dimensions, which autocast runs in FP32 on a CPU",
            ops=names("AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool"),
            where=(ByShape(operand=0, axis=4),),
            formats=_BF16,
        ),
        rule(
            "pad",
            Category.DENY,
            "pads by reflection or replication, which autocast runs in FP32 on a CPU",
            ops=("Pad",),
            where=(ByAttribute("mode", ("edge", "reflect", "replicate")),),
            formats=_BF16,
        ),
    ),
    findings=frozenset(),
    otherwise=Category.INFER,
    promotes_untroubled=False,
    unlisted=Category.INFER,
    missing=Missing.WARN,
)
