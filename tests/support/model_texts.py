"""Small models as ONNX text, for the tests of several folders."""

LAYER_NORM = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[N,4] x) => (float[N,4] y)
<float[4,4] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}, int64[1] axes = {-1}, float two = {2}, float eps = {1e-5}>
{
   [mm] h = MatMul(x, w)
   [mean] m = ReduceMean(h, axes)
   [sub] d = Sub(h, m)
   [sq] s = Pow(d, two)
   [var] v = ReduceMean(s, axes)
   [add] ve = Add(v, eps)
   [sqrt] sd = Sqrt(ve)
   [div] n = Div(d, sd)
   [sm] y = Softmax<axis=-1>(n)
}
"""

# The variance of numbers far from zero: every value fits, and the difference drowns in rounding.
CANCELS = """<ir_version: 10, opset_import: ["" : 21]>
g (float[4,8] x, float[8,8] w) => (float[4,8] y) <int64[1] axis = {1}, float far = {900}> {
    [logits]  l = MatMul(x, w)
    [softmax] p = Softmax(l)
    [shift]   s = Add(p, far)
    [back]    d = Sub(s, far)
    [last]    y = MatMul(d, w)
}"""

# Inputs far from zero, which nothing in the graph tells of.
OFFSET = """<ir_version: 10, opset_import: ["" : 21]>
g (float[4,8] x, float[8,8] w) => (float[4,8] y) <float far = {3}> {
    [back] d = Sub(x, far)
    [last] y = MatMul(d, w)
}"""
