"""What INT8 takes, as arrays and numbers: what is collected of a tensor, the range that is chosen for it, and the
parameters that make integers of it. Knows no model, no runtime and no target.

In the order of their use; `Summary`, `Range`, `Grid` and `Calibrator` stand in `mezzo.contracts.calibrator`:

- `collector.Collector`: what was seen of each value, batch by batch: `add`, `merge`, `summary`, `summaries`; `state`
  and `from_state` to go on later. One pass serves all methods.
- `reading.calibrator_of(word)`: a way to choose a range: a name, a name and a setting, or module:function. Each is a
  file of `calibrators`, or what a package adds as "mezzo.calibrators".
- `choosing.choose_range(calibrator, summary, grid)`: the range, or None where nothing was seen; `choosing.align` for
  values that share parameters.
- `parameters.parameters_for(range, grid)`: a `Quantization`; `guarded_weights`, `bias_parameters` and `quantize_bias`
  for what is added to sums of products.
- `weights.weight_parameters`, `quantize_weights`: of what is constant; `turning.weighted_scales` where data says what
  each weight is multiplied with.
- `correction.corrected_bias`, `smoothing_scales`: for who looks at held-out data afterwards.
- `arithmetic.quantize`, `dequantize`, `round_trip`: as ONNX defines them.
"""
