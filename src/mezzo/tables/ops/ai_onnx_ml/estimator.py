"""Linear models, support vector machines and trees. Class labels and tree branches are steps."""

from mezzo.tables.facts import Cost, OpFacts, Risk, facts

SOURCE = "ONNX 1.23 operator documentation, domain ai.onnx.ml, versions 1 to 5"

FACTS: tuple[OpFacts, ...] = (
    facts("LinearClassifier", Cost.LINEAR, Risk.STEP),
    facts("LinearRegressor", Cost.LINEAR),
    # The kernel is an attribute: a polynomial, or the exponential of a sum of squares.
    facts("SVMClassifier", Cost.OTHER, Risk.STEP, Risk.SUM_OF_SQUARES, Risk.POWER, Risk.SUM),
    facts("SVMRegressor", Cost.OTHER, Risk.SUM_OF_SQUARES, Risk.POWER, Risk.SUM),
    facts("TreeEnsemble", Cost.OTHER, Risk.STEP, Risk.SUM),
    facts("TreeEnsembleClassifier", Cost.OTHER, Risk.STEP, Risk.SUM),
    facts("TreeEnsembleRegressor", Cost.OTHER, Risk.STEP, Risk.SUM),
)
