"""Recurrent networks, which accumulate rounding errors in their state over time steps."""

from collections.abc import Mapping

from mezzo.tables.facts import Cost, OpFacts, Risk, facts

SOURCE = "PyTorch 2.13 documentation, torch.nn, recurrent layers"

FACTS: tuple[OpFacts, ...] = (
    facts("_cudnn_rnn_backward", Cost.RECURRENT, Risk.RECURSION, like="LSTM"),
    # The elementwise rest of a step after the matmuls.
    facts("_thnn_fused_gru_cell", Cost.POINTWISE, Risk.RECURSION, like="Sigmoid"),
    facts("_thnn_fused_gru_cell_backward", Cost.POINTWISE, Risk.RECURSION, like="Sigmoid"),
    facts("_thnn_fused_lstm_cell", Cost.POINTWISE, Risk.RECURSION, like="Sigmoid"),
    facts("_thnn_fused_lstm_cell_backward", Cost.POINTWISE, Risk.RECURSION, like="Sigmoid"),
    facts("_thnn_fused_lstm_cell_backward_impl", Cost.POINTWISE, Risk.RECURSION, like="Sigmoid"),
    # One step of time.
    facts("gru_cell", Cost.RECURRENT, Risk.RECURSION, like="GRU"),
    facts("lstm_cell", Cost.RECURRENT, Risk.RECURSION, like="LSTM"),
    facts("miopen_rnn_backward", Cost.RECURRENT, Risk.RECURSION, like="LSTM"),
    facts("mkldnn_rnn_layer_backward", Cost.RECURRENT, Risk.RECURSION, like="LSTM"),
    facts("rnn_relu_cell", Cost.RECURRENT, Risk.RECURSION, like="RNN"),
    facts("rnn_tanh_cell", Cost.RECURRENT, Risk.RECURSION, like="RNN"),
)

# Operators with all facts of the ONNX operator named.
EQUIVALENTS: Mapping[str, str] = {
    "_cudnn_rnn": "LSTM",
    "gru": "GRU",
    "lstm": "LSTM",
    "miopen_rnn": "LSTM",
    "mkldnn_rnn_layer": "LSTM",
    "rnn_relu": "RNN",
    "rnn_tanh": "RNN",
}
