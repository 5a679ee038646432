"""Losses: one number from a whole batch, where backpropagation starts."""

from collections.abc import Mapping

from mezzo.tables.facts import Cost, OpFacts, Risk, facts

SOURCE = (
    "PyTorch 2.13 documentation, torch.nn.functional, loss functions; Micikevicius et al. 2017"
    " (arXiv:1710.03740)"
)

FACTS: tuple[OpFacts, ...] = (
    facts(
        "_ctc_loss",
        Cost.REDUCTION,
        Risk.LOSS,
        Risk.SUM,
        Risk.SOFTMAX,
        like="SoftmaxCrossEntropyLoss",
    ),
    facts(
        "_ctc_loss_backward", Cost.REDUCTION, Risk.LOSS, Risk.SUM, like="SoftmaxCrossEntropyLoss"
    ),
    facts(
        "_cudnn_ctc_loss",
        Cost.REDUCTION,
        Risk.LOSS,
        Risk.SUM,
        Risk.SOFTMAX,
        like="SoftmaxCrossEntropyLoss",
    ),
    facts(
        "binary_cross_entropy",
        Cost.REDUCTION,
        Risk.LOSS,
        Risk.SUM,
        Risk.RECIPROCAL,
        like="SoftmaxCrossEntropyLoss",
    ),
    facts(
        "binary_cross_entropy_backward", Cost.POINTWISE, Risk.LOSS, like="SoftmaxCrossEntropyLoss"
    ),
    facts(
        "binary_cross_entropy_with_logits",
        Cost.REDUCTION,
        Risk.LOSS,
        Risk.SUM,
        Risk.RECIPROCAL,
        like="SoftmaxCrossEntropyLoss",
    ),
    facts(
        "cosine_embedding_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM, like="SoftmaxCrossEntropyLoss"
    ),
    facts(
        "ctc_loss",
        Cost.REDUCTION,
        Risk.LOSS,
        Risk.SUM,
        Risk.SOFTMAX,
        like="SoftmaxCrossEntropyLoss",
    ),
    facts(
        "hinge_embedding_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM, like="SoftmaxCrossEntropyLoss"
    ),
    facts("huber_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM, like="SoftmaxCrossEntropyLoss"),
    facts("huber_loss_backward", Cost.POINTWISE, Risk.LOSS, like="SoftmaxCrossEntropyLoss"),
    facts("kl_div", Cost.REDUCTION, Risk.LOSS, Risk.SUM, like="SoftmaxCrossEntropyLoss"),
    facts("l1_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM, like="SoftmaxCrossEntropyLoss"),
    facts(
        "margin_ranking_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM, like="SoftmaxCrossEntropyLoss"
    ),
    facts(
        "mse_loss",
        Cost.REDUCTION,
        Risk.LOSS,
        Risk.SUM,
        Risk.SUM_OF_SQUARES,
        like="SoftmaxCrossEntropyLoss",
    ),
    facts("mse_loss_backward", Cost.POINTWISE, Risk.LOSS, like="SoftmaxCrossEntropyLoss"),
    facts("multi_margin_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM, like="SoftmaxCrossEntropyLoss"),
    facts("multi_margin_loss_backward", Cost.POINTWISE, Risk.LOSS, like="SoftmaxCrossEntropyLoss"),
    facts(
        "multilabel_margin_loss",
        Cost.REDUCTION,
        Risk.LOSS,
        Risk.SUM,
        like="SoftmaxCrossEntropyLoss",
    ),
    facts(
        "multilabel_margin_loss_backward", Cost.POINTWISE, Risk.LOSS, like="SoftmaxCrossEntropyLoss"
    ),
    facts(
        "multilabel_margin_loss_forward",
        Cost.REDUCTION,
        Risk.LOSS,
        Risk.SUM,
        like="SoftmaxCrossEntropyLoss",
    ),
    # They spread one number over the places of the targets.
    facts("nll_loss2d_backward", Cost.MOVEMENT, Risk.LOSS, like="NegativeLogLikelihoodLoss"),
    facts("nll_loss_backward", Cost.MOVEMENT, Risk.LOSS, like="NegativeLogLikelihoodLoss"),
    facts("poisson_nll_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM, like="SoftmaxCrossEntropyLoss"),
    facts("smooth_l1_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM, like="SoftmaxCrossEntropyLoss"),
    facts("smooth_l1_loss_backward", Cost.POINTWISE, Risk.LOSS, like="SoftmaxCrossEntropyLoss"),
    facts("soft_margin_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM, like="SoftmaxCrossEntropyLoss"),
    facts("soft_margin_loss_backward", Cost.POINTWISE, Risk.LOSS, like="SoftmaxCrossEntropyLoss"),
    facts(
        "triplet_margin_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM, like="SoftmaxCrossEntropyLoss"
    ),
)

# Operators with all facts of the ONNX operator named.
EQUIVALENTS: Mapping[str, str] = {
    "cross_entropy_loss": "SoftmaxCrossEntropyLoss",
    "nll_loss": "NegativeLogLikelihoodLoss",
    "nll_loss2d": "NegativeLogLikelihoodLoss",
    "nll_loss2d_forward": "NegativeLogLikelihoodLoss",
    "nll_loss_forward": "NegativeLogLikelihoodLoss",
    "nll_loss_nd": "NegativeLogLikelihoodLoss",
}
