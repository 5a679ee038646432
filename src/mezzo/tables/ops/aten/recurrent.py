"""Recurrent networks, which accumulate rounding errors in their state over time steps."""

from mezzo.tables.facts import Cost, OpFacts, Risk, Transfer, facts

SOURCE = "PyTorch 2.13 documentation, torch.nn, recurrent layers"

FACTS: tuple[OpFacts, ...] = (
    facts("_cudnn_rnn", Cost.RECURRENT, Risk.RECURSION, like="LSTM", transfer=Transfer.RECURRENT),
    facts("_cudnn_rnn_backward", Cost.RECURRENT, Risk.RECURSION, like="LSTM"),
    # The elementwise rest of a step after the matmuls.
    facts("_thnn_fused_gru_cell", Cost.POINTWISE, Risk.RECURSION, like="Sigmoid"),
    facts("_thnn_fused_gru_cell_backward", Cost.POINTWISE, Risk.RECURSION, like="Sigmoid"),
    facts("_thnn_fused_lstm_cell", Cost.POINTWISE, Risk.RECURSION, like="Sigmoid"),
    facts("_thnn_fused_lstm_cell_backward", Cost.POINTWISE, Risk.RECURSION, like="Sigmoid"),
    facts("_thnn_fused_lstm_cell_backward_impl", Cost.POINTWISE, Risk.RECURSION, like="Sigmoid"),
    facts("gru", Cost.RECURRENT, Risk.RECURSION, like="GRU", transfer=Transfer.RECURRENT),
    # One step of time.
    facts("gru_cell", Cost.RECURRENT, Risk.RECURSION, like="GRU"),
    facts("lstm", Cost.RECURRENT, Risk.RECURSION, like="LSTM", transfer=Transfer.RECURRENT),
    facts("lstm_cell", Cost.RECURRENT, Risk.RECURSION, like="LSTM"),
    facts("miopen_rnn", Cost.RECURRENT, Risk.RECURSION, like="LSTM", transfer=Transfer.RECURRENT),
    facts("miopen_rnn_backward", Cost.RECURRENT, Risk.RECURSION, like="LSTM"),
    facts(
        "mkldnn_rnn_layer", Cost.RECURRENT, Risk.RECURSION, like="LSTM", transfer=Transfer.RECURRENT
    ),
    facts("mkldnn_rnn_layer_backward", Cost.RECURRENT, Risk.RECURSION, like="LSTM"),
    facts("rnn_relu", Cost.RECURRENT, Risk.RECURSION, like="RNN", transfer=Transfer.RECURRENT),
    facts("rnn_relu_cell", Cost.RECURRENT, Risk.RECURSION, like="RNN"),
    facts("rnn_tanh", Cost.RECURRENT, Risk.RECURSION, like="RNN", transfer=Transfer.RECURRENT),
    facts("rnn_tanh_cell", Cost.RECURRENT, Risk.RECURSION, like="RNN"),
)
