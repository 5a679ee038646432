"""Examples in the help; they run as written, in order, in a folder with model.onnx and data.npz.

Node names are those of examples/digits/digits.onnx.
"""

TOP_EXAMPLES = "mezzo"
IN_PYTHON = (
    'mezzo.convert("model.onnx", "model.fp16.onnx", to="fp16")',
    'mezzo.torch.compile(module, to="bf16")   # PyTorch, as torch.compile; also in training',
)

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    TOP_EXAMPLES: (
        ("mezzo convert model.onnx model.fp16.onnx --to fp16", "what most people need"),
        (
            "mezzo convert model.onnx model.int8.onnx --to int8 --data data.npz",
            "INT8: your data gives the scales",
        ),
        ("mezzo plan model.onnx --to bf16", "look before anything is written"),
        (
            "mezzo convert model.onnx safe.onnx --data data.npz",
            "keep in FP32 what your data shows to overflow",
        ),
        (
            "mezzo compare model.onnx safe.onnx --data data.npz",
            "the same answers? judged in the true precision",
        ),
        (
            "mezzo tune model.onnx fast.onnx --data data.npz --max-error 1e-3",
            "the fastest model inside a budget",
        ),
    ),
    "convert": (
        (
            "mezzo convert model.onnx model.fp16.onnx --to fp16",
            "inputs and outputs keep their types",
        ),
        (
            "mezzo convert model.onnx model.int8.onnx --to int8 --data data.npz",
            "INT8: the scales come from your data, which also checks the result",
        ),
        (
            "mezzo convert model.onnx safe.onnx --data data.npz",
            "protect what overflows on your data, and check",
        ),
        (
            "mezzo convert model.onnx model.bf16.onnx --to bf16 --policy aggressive",
            "fewer nodes in FP32",
        ),
        (
            "mezzo convert model.onnx typed.onnx --exclude 'op:Gemm' --exclude '*/head/*'",
            "keep layers in FP32",
        ),
        ("mezzo convert model.onnx low.onnx --io low", "low inputs and outputs too"),
        (
            "mezzo convert low.onnx back.onnx --to fp32",
            "where only an FP16 file is left: FP32 again, to be planned anew",
        ),
        (
            "mezzo convert model.onnx small.onnx --save-plan plan.json",
            "keep the decisions for review",
        ),
        ("mezzo convert model.onnx again.onnx --plan plan.json", "replay them, edited or not"),
        ("mezzo convert model.onnx safe.onnx --data data.npz --json", "the whole account as data"),
        (
            "mezzo convert --from-trtexec 'trtexec --onnx=model.onnx --fp16 --saveEngine=e'",
            "a trtexec line of TensorRT 10, for TensorRT 11",
        ),
    ),
    "llm": (
        ("mezzo llm SmolLM2-135M small", "weights in four bits; ready for onnxruntime-genai"),
        ("mezzo llm SmolLM2-135M checked --data prose.txt", "and how far the answers moved"),
        (
            "mezzo llm SmolLM2-135M best --to int4,int8w --data prose.txt --max-bytes 100MB",
            "the most accurate one of a size",
        ),
    ),
    "ranges": (
        ("mezzo ranges model.onnx --data data.npz", "what fp16 would do to each value"),
        (
            "mezzo ranges model.onnx --data data.npz --json",
            "every value, with quantiles, for every format",
        ),
    ),
    "compare": (
        ("mezzo convert model.onnx model.fp16.onnx", "a candidate"),
        (
            "mezzo compare model.onnx model.fp16.onnx --data data.npz --max-error 1e-2",
            "exit code 0: within the budget",
        ),
        (
            (
                "mezzo compare model.onnx model.fp16.onnx --data data.npz --max-error 1e-2 --run"
                " native"
            ),
            "as ONNX Runtime's CPU runs it, which computes FP16 in FP32",
        ),
        (
            "mezzo compare model.onnx model.fp16.onnx --data data.npz --max-error 1e-2 --json",
            "every layer as data",
        ),
        (
            "mezzo compare model.onnx model.fp16.onnx --data random",
            "no data at hand: does it run?",
        ),
    ),
    "blame": (
        ("mezzo convert model.onnx model.fp16.onnx --to fp16", "a low-precision model"),
        (
            "mezzo blame model.onnx model.fp16.onnx --data data.npz --target onnxruntime-cpu",
            "exit code 0: neither plan nor kernels are wrong",
        ),
        (
            (
                "mezzo blame model.onnx model.fp16.onnx --data data.npz --target onnxruntime-cpu"
                " --reproduce fault"
            ),
            "what a kernel does wrong, as a model of its own, for a report",
        ),
    ),
    "sensitivity": (
        ("mezzo sensitivity model.onnx --data data.npz", "which operators cost most of the error"),
        (
            "mezzo sensitivity model.onnx --data data.npz --to bf16 --top 5",
            "in BF16, the worst five",
        ),
    ),
    "tune": (
        (
            "mezzo tune model.onnx fast.onnx --data data.npz --max-error 1e-3",
            "largest relative L2 error of an output",
        ),
        (
            (
                "mezzo tune model.onnx fast.onnx --data data.npz --max-error 1e-2 --to bf16"
                " --save-plan plan.json"
            ),
            "keep the decisions for review",
        ),
        (
            (
                "mezzo tune model.onnx fast.onnx --data data.npz --max-error 1e-3 --time-limit 10m"
                " --resume search.json"
            ),
            "a search that can stop and go on",
        ),
        (
            "mezzo tune model.onnx fast.onnx --data data.npz --max-error 1e-3 --json",
            "the frontier and every decision as data",
        ),
    ),
    "bench": (
        ("mezzo convert model.onnx model.fp16.onnx", "a candidate"),
        (
            "mezzo bench model.onnx model.fp16.onnx --runs 10 --starts 2",
            "which is faster on ONNX Runtime's CPU",
        ),
        (
            "mezzo bench model.onnx --data data.npz --batch 16 --threads 1 --runs 10",
            "on your data, 16 at a time",
        ),
        ("mezzo bench model.onnx --seconds 5 -v", "for five seconds, and what the time goes into"),
        ("mezzo bench model.onnx --runs 10 --json", "every turn as data"),
    ),
    "quantize-report": (
        (
            "mezzo quantize-report model.onnx --data data.npz",
            "every calibrator, for ONNX Runtime's CPU",
        ),
        (
            "mezzo quantize-report model.onnx --data data.npz --target openvino-cpu --to int8,bf16",
            "three precisions in one plan",
        ),
        (
            (
                "mezzo quantize-report model.onnx --data data.npz --calibrators"
                " minmax,mse,percentile=99.9"
            ),
            "some of them, with a setting",
        ),
        (
            "mezzo quantize-report model.onnx --data data.npz --held-out data.npz --json",
            "judged on other data, as data",
        ),
    ),
    "plan": (
        ("mezzo plan model.onnx --to fp16", "what would run in which precision, and why"),
        (
            "mezzo plan model.onnx --to fp16 --save plan.json",
            "save it for review, editing and replay",
        ),
        ("mezzo plan model.onnx --nodes", "every node by name"),
        ("mezzo plan model.onnx --to fp16 --json", "the plan itself on stdout"),
        ("mezzo plan model.onnx --to fp16 --as nncf", "the same nodes, as NNCF takes them"),
        ("mezzo plan plan.json --as trt --out build.sh", "a saved plan, for TensorRT 10"),
    ),
    "explain": (
        ("mezzo explain model.onnx /head/Gemm --to fp16", "why a node runs in what it runs in"),
        ("mezzo plan model.onnx --save plan.json", "save a plan"),
        ("mezzo explain plan.json /head/Gemm", "ask it, without the model"),
    ),
    "diff": (
        ("mezzo plan model.onnx --save a.json", "a plan"),
        ("mezzo plan model.onnx --save b.json", "another, which may have other options"),
        ("mezzo diff a.json b.json", "exit code 0: they decide the same"),
        ("mezzo diff a.json b.json --model model.onnx", "with the casts that each makes"),
        ("mezzo plan diff a.json b.json --json", "the same, every difference as data"),
        ("mezzo convert model.onnx a.onnx --to fp16 --report a.html", "a report"),
        ("mezzo convert model.onnx b.onnx --to fp16 --report b.html", "another"),
        ("mezzo diff a.html b.html --report two.html", "two reports: plans, errors and times"),
    ),
    "show": (
        ("mezzo show model.onnx", "every value with its type"),
        ("mezzo show model.onnx --grep Softmax", "some lines of it"),
        ("mezzo show model.onnx | grep Softmax", "in a pipe it is plain"),
    ),
    "partition": (
        ("mezzo partition model.onnx --target openvino-cpu", "which nodes become one kernel there"),
        ("mezzo partition model.onnx --nodes", "every operator with its unit"),
        (
            "mezzo partition model.onnx --extract 1 -o part.onnx",
            "the first unit as a model of its own",
        ),
        (
            "mezzo partition model.onnx --extract /head/Gemm -o part.onnx",
            "the unit that holds a node",
        ),
        ("mezzo partition model.onnx --json", "the same as data"),
    ),
    "policies": (("mezzo policies", "each preset with its rules in order"),),
    "strategies": (
        ("mezzo strategies", "how each decides"),
        ("mezzo strategies model.onnx", "what each makes of a model, the cheapest first"),
    ),
    "targets": (
        ("mezzo targets", "which formats run and gain where"),
        ("mezzo targets tensorrt", "what one refuses, and who says so"),
    ),
    "ops": (
        ("mezzo ops", "what is known of every operator"),
        ("mezzo ops '*norm*'", "of some"),
        ("mezzo ops Softmax", "of one, with what each policy makes of it"),
    ),
    "doctor": (
        ("mezzo doctor", "which runtimes work here, and what can be checked"),
        ("mezzo doctor --json", "the same as data"),
    ),
}
