"""Phrases of arithmetic in all their spellings. A `Writer` is a draft that knows them.

Every phrase says the same as its first spelling, up to roundings of FP32. Sums and means are over the last axis, of
`size` numbers, which is kept.
"""

import numpy as np

from spellings.draft import FLOAT, Draft


class Writer(Draft):
    """Writes mathematics; how it is spelled is drawn."""

    # --- two operands ------------------------------------------------------------------------------------------------

    def add(self, a: str, b: str) -> str:
        match self.choose("Add", "Add swapped", "Sum", "Sub of Neg"):
            case "Add swapped":
                return self.op("Add", b, self.noise(a))
            case "Sum":
                return self.op("Sum", a, b)
            case "Sub of Neg":
                return self.op("Sub", a, self.op("Neg", b))
            case _:
                return self.op("Add", self.noise(a), b)

    def sub(self, a: str, b: str) -> str:
        match self.choose("Sub", "Add of Neg", "Neg of Sub", "Add of Mul -1"):
            case "Add of Neg":
                return self.op("Add", a, self.op("Neg", b))
            case "Neg of Sub":
                return self.op("Neg", self.op("Sub", b, a))
            case "Add of Mul -1":
                return self.op("Add", self.op("Mul", b, self.constant(-1)), a)
            case _:
                return self.op("Sub", self.noise(a), b)

    def mul(self, a: str, b: str) -> str:
        match self.choose("Mul", "Mul swapped"):
            case "Mul swapped":
                return self.op("Mul", b, a)
            case _:
                return self.op("Mul", self.noise(a), b)

    def div(self, a: str, b: str) -> str:
        match self.choose("Div", "Mul by Reciprocal", "Mul by Pow -1", "Mul by 1 / b", "Reciprocal of b / a"):
            case "Mul by Reciprocal":
                return self.op("Mul", a, self.op("Reciprocal", b))
            case "Mul by Pow -1":
                return self.op("Mul", a, self.op("Pow", b, self.constant(-1)))
            case "Mul by 1 / b":
                return self.op("Mul", self.op("Div", self.constant(1), b), a)
            case _:
                return self.op("Div", self.noise(a), b)

    def times(self, value: str, factor: float) -> str:
        match self.choose("Mul", "Div by a constant", "Mul swapped"):
            case "Div by a constant":
                return self.op("Div", value, self.constant(1 / factor))
            case "Mul swapped":
                return self.op("Mul", self.constant(factor), value)
            case _:
                return self.op("Mul", value, self.constant(factor))

    def plus(self, value: str, term: float) -> str:
        match self.choose("Add", "Sub of a negative"):
            case "Sub of a negative":
                return self.op("Sub", value, self.constant(-term))
            case _:
                return self.add(value, self.constant(term))

    def one_minus(self, value: str) -> str:
        match self.choose("Sub", "Neg of Sub", "Add of Neg"):
            case "Neg of Sub":
                return self.op("Neg", self.op("Sub", value, self.constant(1)))
            case "Add of Neg":
                return self.op("Add", self.op("Neg", value), self.constant(1))
            case _:
                return self.op("Sub", self.constant(1), value)

    def clip(self, value: str, low: float | None, high: float | None) -> str:
        match self.choose("Clip", "Min of Max", "Where"):
            case "Min of Max":
                if low is not None:
                    value = self.op("Max", value, self.constant(low))
                return value if high is None else self.op("Min", self.constant(high), value)
            case "Where":
                if low is not None:
                    bound = self.constant(low)
                    value = self.op("Where", self.op("Less", value, bound), bound, value)
                if high is not None:
                    bound = self.constant(high)
                    value = self.op("Where", self.op("Greater", value, bound), bound, value)
                return value
            case _:
                bounds = ["" if low is None else self.scalar(low), "" if high is None else self.scalar(high)]
                return self.op("Clip", value, *(bounds if high is not None else bounds[:1]))

    def scalar(self, value: float) -> str:
        """A scalar initializer, for operands that have to be one."""
        return self.initializer(np.float32(value))

    # --- one operand -------------------------------------------------------------------------------------------------

    def square(self, x: str) -> str:
        integer = ("Pow i64",) if self.opset >= 12 else ()
        match self.choose("Mul(x, x)", "Pow 2", "Mul(x, Identity(x))", "Mul(|x|, |x|)", *integer):
            case "Pow 2":
                return self.op("Pow", self.noise(x), self.constant(2))
            case "Pow i64":
                return self.op("Pow", x, self.initializer(np.int64(2)))
            case "Mul(x, Identity(x))":
                return self.op("Mul", x, self.op("Identity", x))
            case "Mul(|x|, |x|)":
                size = self.op("Abs", x)
                return self.op("Mul", size, size)
            case _:
                return self.op("Mul", x, x)

    def sqrt(self, x: str) -> str:
        match self.choose("Sqrt", "Pow 0.5"):
            case "Pow 0.5":
                return self.op("Pow", x, self.constant(0.5))
            case _:
                return self.op("Sqrt", x)

    def over_root(self, a: str, x: str) -> str:
        """a / sqrt(x)"""
        match self.choose("Div by Sqrt", "Mul by Pow -0.5", "Mul by Sqrt of Reciprocal", "Mul by Reciprocal of Sqrt"):
            case "Mul by Pow -0.5":
                return self.op("Mul", a, self.op("Pow", x, self.constant(-0.5)))
            case "Mul by Sqrt of Reciprocal":
                return self.op("Mul", self.op("Sqrt", self.op("Reciprocal", x)), a)
            case "Mul by Reciprocal of Sqrt":
                return self.op("Mul", a, self.op("Reciprocal", self.sqrt(x)))
            case _:
                return self.div(a, self.sqrt(x))

    def exp(self, x: str) -> str:
        match self.choose("Exp", "Pow of e", "Reciprocal of Exp of Neg"):
            case "Pow of e":
                return self.op("Pow", self.constant(np.e), x)
            case "Reciprocal of Exp of Neg":
                return self.op("Reciprocal", self.op("Exp", self.op("Neg", x)))
            case _:
                return self.op("Exp", self.noise(x))

    def log(self, x: str) -> str:
        match self.choose("Log", "Neg of Log of Reciprocal"):
            case "Neg of Log of Reciprocal":
                return self.op("Neg", self.op("Log", self.op("Reciprocal", x)))
            case _:
                return self.op("Log", x)

    def sigmoid(self, x: str) -> str:
        match self.choose("Sigmoid", "1 / (1 + exp(-x))", "half tanh"):
            case "1 / (1 + exp(-x))":
                return self.op("Reciprocal", self.plus(self.op("Exp", self.op("Neg", x)), 1))
            case "half tanh":
                half = self.op("Tanh", self.times(x, 0.5))
                return self.times(self.plus(half, 1), 0.5)
            case _:
                return self.op("Sigmoid", x)

    def probability(self, x: str) -> str:
        """A sigmoid that FP32 rounds well on both sides."""
        return self.op("Sigmoid", x)

    # --- sums --------------------------------------------------------------------------------------------------------

    def sum(self, x: str, size: int) -> str:
        einsum = ("Einsum sum",) if self.opset >= 12 else ()
        match self.choose("ReduceSum", "MatMul with ones", "ReduceMean times size", *einsum):
            case "MatMul with ones":
                return self.op("MatMul", x, self.constant(np.ones((size, 1))))
            case "ReduceMean times size":
                return self.times(self.reduce("ReduceMean", x, -1), size)
            case "Einsum sum":
                return self.unsqueeze(self.op("Einsum", x, equation="...i->..."), -1)
            case _:
                return self.reduce("ReduceSum", self.noise(x), -1)

    def mean(self, x: str, size: int) -> str:
        """The mean of rows of a matrix."""
        einsum = ("Einsum with 1/K",) if self.opset >= 12 else ()
        pools = ("GlobalAveragePool", "AveragePool", "Conv with 1/K")
        sums = ("ReduceSum / K", "ReduceSum * 1/K", "MatMul with 1/K")
        match self.choose("ReduceMean", *sums, *pools, *einsum):
            case "ReduceSum / K":
                return self.op("Div", self.reduce("ReduceSum", x, -1), self.constant(size))
            case "ReduceSum * 1/K":
                return self.op("Mul", self.reduce("ReduceSum", x, -1), self.constant(1 / size))
            case "MatMul with 1/K":
                return self.op("MatMul", x, self.constant(np.full((size, 1), 1 / size)))
            case "Einsum with 1/K":
                return self.unsqueeze(self.op("Einsum", x, self.constant([1 / size] * size), equation="ij,j->i"), -1)
            case "GlobalAveragePool":
                return self.squeeze(self.op("GlobalAveragePool", self.unsqueeze(x, 1)), 1)
            case "AveragePool":
                return self.squeeze(self.op("AveragePool", self.unsqueeze(x, 1), kernel_shape=[size]), 1)
            case "Conv with 1/K":
                kernel = self.initializer(np.full((1, 1, size), 1 / size, np.float32))
                return self.squeeze(self.op("Conv", self.unsqueeze(x, 1), kernel), 1)
            case _:
                return self.reduce("ReduceMean", self.noise(x), -1)

    def sum_squares(self, x: str, size: int) -> str:
        """Sums of squares of rows of a matrix."""
        einsum = ("Einsum of squares",) if self.opset >= 12 else ()
        match self.choose("square, sum", "ReduceSumSquare", "square of ReduceL2", "MatMul with itself", *einsum):
            case "ReduceSumSquare":
                return self.reduce("ReduceSumSquare", x, -1)
            case "square of ReduceL2":
                return self.square(self.reduce("ReduceL2", x, -1))
            case "MatMul with itself":
                row, column = self.unsqueeze(x, 1), self.unsqueeze(x, 2)
                return self.squeeze(self.op("MatMul", row, column), 2)
            case "Einsum of squares":
                return self.unsqueeze(self.op("Einsum", x, x, equation="ij,ij->i"), -1)
            case _:
                return self.sum(self.square(x), size)

    def mean_squares(self, x: str, size: int) -> str:
        match self.choose("square, mean", "sum of squares * 1/K", "sum of squares / K"):
            case "sum of squares * 1/K":
                return self.times(self.sum_squares(x, size), 1 / size)
            case "sum of squares / K":
                return self.op("Div", self.sum_squares(x, size), self.constant(size))
            case _:
                return self.mean(self.square(x), size)

    def length(self, x: str, size: int) -> str:
        """L2 norms of rows of a matrix."""
        # ONNX Runtime has no kernel for its newest version.
        pools = ("GlobalLpPool", "LpPool") if self.opset < 22 else ("LpPool",)
        match self.choose("root of sum", "ReduceL2", *pools):
            case "ReduceL2":
                return self.reduce("ReduceL2", self.noise(x), -1)
            case "GlobalLpPool":
                return self.squeeze(self.op("GlobalLpPool", self.unsqueeze(x, 1), p=2), 1)
            case "LpPool":
                return self.squeeze(self.op("LpPool", self.unsqueeze(x, 1), kernel_shape=[size], p=2), 1)
            case _:
                return self.sqrt(self.sum_squares(x, size))

    def dot(self, a: str, b: str, size: int) -> str:
        """Dot products of rows of two matrices."""
        einsum = ("Einsum of products",) if self.opset >= 12 else ()
        match self.choose("Mul, sum", "MatMul of rows", *einsum):
            case "MatMul of rows":
                return self.squeeze(self.op("MatMul", self.unsqueeze(a, 1), self.unsqueeze(b, 2)), 2)
            case "Einsum of products":
                return self.unsqueeze(self.op("Einsum", a, b, equation="ij,ij->i"), -1)
            case _:
                return self.sum(self.mul(a, b), size)

    # --- scale that the model makes ----------------------------------------------------------------------------------

    def scaled(self, x: str, size: int, scale: float, offset: float = 0.0) -> str:
        """Rows of `size` numbers, times `scale`, plus `offset`: by arithmetic, a normalization or a matrix."""
        matrices = ("MatMul by a matrix", "Gemm") if size <= 1024 else ()
        match self.choose("Mul, Add", "BatchNormalization", "Conv 1x1", *matrices):
            case "BatchNormalization":
                ones = np.ones(size, np.float32)
                parts = (ones * scale, ones * offset, 0 * ones, ones)
                return self.op("BatchNormalization", x, *map(self.initializer, parts), epsilon=0.0)
            case "MatMul by a matrix":
                y = self.op("MatMul", x, self.initializer(self.rotation(size) * np.float32(scale)))
                return self.plus(y, offset) if offset else y
            case "Gemm":
                matrix = self.initializer(self.rotation(size) * np.float32(scale))
                return self.op("Gemm", x, matrix, self.initializer(np.full(size, offset, np.float32)), transB=1)
            case "Conv 1x1":
                kernel = self.initializer(np.array([[[scale]]], np.float32))
                bias = self.initializer(np.array([offset], np.float32))
                return self.squeeze(self.op("Conv", self.unsqueeze(x, 1), kernel, bias), 1)
            case _:
                y = x if scale == 1 else self.times(x, scale)
                return self.plus(y, offset) if offset else y

    def rotation(self, size: int) -> np.ndarray:
        """A matrix that keeps unit normal numbers unit normal, or nearly so where it is large."""
        if size > 512:
            return np.eye(size, dtype=np.float32)[self.numbers.permutation(size)]
        return np.linalg.qr(self.numbers.standard_normal((size, size)))[0].astype(np.float32)

    def as_float(self, value: str) -> str:
        return self.op("Cast", value, to=FLOAT)
