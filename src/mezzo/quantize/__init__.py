"""INT8 quantization: observers, calibrators, arithmetic, and corrections that data confirms.

In order of use; `Summary`, `Range`, `Grid`, `Calibrator` are in `mezzo.contracts.calibrator`:

- `observers.collector.Collector`: statistics of each value, batch by batch: `add`, `merge`,
  `summary`, `summaries`; `state` and `from_state` to save and resume.
- `calibrator_names.calibrator_of(word)`: a calibrator by its name, with a setting, or as
  module:function. Each is a file of `calibrators`, or registered by a package under
  "mezzo.calibrators".
- `arithmetic.choosing.choose_range(calibrator, summary, grid)`: the range, None without finite
  elements; `align` for values that share parameters.
- `arithmetic.parameters.parameters_for(range, grid)`: a `Quantization`; `guarded_weights`,
  `bias_parameters` and `quantize_bias` for INT32 biases.
- `arithmetic.weights`, `gptq`, `correction`: rounding to nearest, GPTQ, bias correction,
  SmoothQuant.
- `arithmetic.arithmetic.quantize`, `dequantize`, `round_trip`: as ONNX defines them.
"""
