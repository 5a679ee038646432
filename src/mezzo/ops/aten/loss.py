"""Losses: one number from a whole batch, where gradients start."""

from mezzo.core.facts import Cost, OpFacts, Risk, facts

SOURCE = "PyTorch 2.13 documentation, torch.nn.functional, loss functions; Micikevicius et al. 2017 (arXiv:1710.03740)"

FACTS: tuple[OpFacts, ...] = (
    facts("_ctc_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM, Risk.SOFTMAX),
    facts("_ctc_loss_backward", Cost.REDUCTION, Risk.LOSS, Risk.SUM),
    facts("_cudnn_ctc_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM, Risk.SOFTMAX),
    facts("binary_cross_entropy", Cost.REDUCTION, Risk.LOSS, Risk.SUM, Risk.RECIPROCAL),
    facts("binary_cross_entropy_backward", Cost.POINTWISE, Risk.LOSS),
    facts("binary_cross_entropy_with_logits", Cost.REDUCTION, Risk.LOSS, Risk.SUM, Risk.RECIPROCAL),
    facts("cosine_embedding_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM),
    facts("cross_entropy_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM, Risk.SOFTMAX, Risk.RECIPROCAL),
    facts("ctc_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM, Risk.SOFTMAX),
    facts("hinge_embedding_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM),
    facts("huber_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM),
    facts("huber_loss_backward", Cost.POINTWISE, Risk.LOSS),
    facts("kl_div", Cost.REDUCTION, Risk.LOSS, Risk.SUM),
    facts("l1_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM),
    facts("margin_ranking_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM),
    facts("mse_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM, Risk.SUM_OF_SQUARES),
    facts("mse_loss_backward", Cost.POINTWISE, Risk.LOSS),
    facts("multi_margin_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM),
    facts("multi_margin_loss_backward", Cost.POINTWISE, Risk.LOSS),
    facts("multilabel_margin_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM),
    facts("multilabel_margin_loss_backward", Cost.POINTWISE, Risk.LOSS),
    facts("multilabel_margin_loss_forward", Cost.REDUCTION, Risk.LOSS, Risk.SUM),
    facts("nll_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM),
    facts("nll_loss2d", Cost.REDUCTION, Risk.LOSS, Risk.SUM),
    # They spread one number over the places of the targets.
    facts("nll_loss2d_backward", Cost.MOVEMENT, Risk.LOSS),
    facts("nll_loss2d_forward", Cost.REDUCTION, Risk.LOSS, Risk.SUM),
    facts("nll_loss_backward", Cost.MOVEMENT, Risk.LOSS),
    facts("nll_loss_forward", Cost.REDUCTION, Risk.LOSS, Risk.SUM),
    facts("nll_loss_nd", Cost.REDUCTION, Risk.LOSS, Risk.SUM),
    facts("poisson_nll_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM),
    facts("smooth_l1_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM),
    facts("smooth_l1_loss_backward", Cost.POINTWISE, Risk.LOSS),
    facts("soft_margin_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM),
    facts("soft_margin_loss_backward", Cost.POINTWISE, Risk.LOSS),
    facts("triplet_margin_loss", Cost.REDUCTION, Risk.LOSS, Risk.SUM),
)
