"""Feature preprocessing. Categories match by equality, so rounding breaks the match."""

from mezzo.tables.facts import Cost, OpFacts, Risk, facts

SOURCE = "ONNX 1.23 operator documentation, domain ai.onnx.ml, versions 1 to 4"

FACTS: tuple[OpFacts, ...] = (
    facts("ArrayFeatureExtractor", Cost.MOVEMENT, keeps_values=True),
    facts("Binarizer", Cost.POINTWISE, Risk.STEP, is_bounded=True),
    facts("CastMap", Cost.OTHER, Risk.TEXT),
    facts("CategoryMapper", Cost.OTHER, Risk.TEXT),
    facts("DictVectorizer", Cost.OTHER, Risk.TEXT),
    facts("FeatureVectorizer", Cost.MOVEMENT, keeps_values=True),
    facts("Imputer", Cost.POINTWISE, Risk.STEP),
    facts("LabelEncoder", Cost.OTHER, Risk.STEP, Risk.TEXT),
    # The norm is an attribute: max, L1 or L2.
    facts("Normalizer", Cost.NORMALIZATION, Risk.SUM_OF_SQUARES, is_bounded=True),
    facts("OneHotEncoder", Cost.GENERATOR, Risk.STEP, is_bounded=True),
    facts("Scaler", Cost.POINTWISE),
    facts("ZipMap", Cost.OTHER, Risk.TEXT),
)
