"""The private names of PyTorch's compiler: the only place that imports them.

PyTorch has no public equivalent of these. `mezzo.aten.torch_internals` has those for graphs, and
says which versions were tested.
"""

import operator
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from mezzo.aten.torch_versions import check_torch, unsupported_torch

check_torch()

try:
    import torch
    import torch._dynamo.config
    import torch._dynamo.utils
    import torch._functorch.config
    import torch._inductor.config
    import torch._inductor.utils
    import torch.fx.traceback
    import torch.utils._python_dispatch
    import torch.utils._pytree

    # Registers a backend for torch.compile in a package without metadata.
    from torch._dynamo import register_backend as register_backend

    # Calls before and after each compilation, to hide gradients that Dynamo does not trace.
    from torch._dynamo.callback import CallbackArgs as CallbackArgs
    from torch._dynamo.callback import CallbackTrigger as CallbackTrigger
    from torch._dynamo.callback import callback_handler as callback_handler

    # The class of compiled modules, which `CompiledModule` extends.
    from torch._dynamo.eval_frame import OptimizedModule as OptimizedModule

    # The backend inside torch.compile's wrappers.
    from torch._dynamo.eval_frame import innermost_backend as innermost_backend

    # Compiles with a backend as it is: torch.compile wraps it, which hides its context.
    from torch._dynamo.eval_frame import optimize as optimize

    # What makes Dynamo compile again where a frozen tensor is another.
    from torch._dynamo.guards import GuardBuilder as GuardBuilder
    from torch._dynamo.guards import install_guard as install_guard

    # The source that Dynamo requires of added inputs.
    from torch._dynamo.source import ConstantSource as ConstantSource

    # The running trace: its backend, and how many subgraphs are open.
    from torch._dynamo.symbolic_convert import InstructionTranslator as InstructionTranslator

    # The functions that function modes see while Dynamo traces: a cached set, without those of
    # fused encoder layers.
    from torch._dynamo.variables.torch import (
        get_overridable_functions as get_overridable_functions,
    )

    # What the inputs and outputs of AOTAutograd's graphs are: weights, arguments, gradients.
    from torch._functorch._aot_autograd.descriptors import BufferAOTInput as BufferAOTInput
    from torch._functorch._aot_autograd.descriptors import GradAOTOutput as GradAOTOutput
    from torch._functorch._aot_autograd.descriptors import (
        InputMutationAOTOutput as InputMutationAOTOutput,
    )
    from torch._functorch._aot_autograd.descriptors import ParamAOTInput as ParamAOTInput
    from torch._functorch._aot_autograd.descriptors import PlainAOTInput as PlainAOTInput
    from torch._functorch._aot_autograd.descriptors import TangentAOTInput as TangentAOTInput

    # Whether a graph writes an input, which is then not frozen.
    from torch._functorch._aot_autograd.schemas import MutationType as MutationType

    # The fake mode and the frozen weights of the running compilation.
    from torch._guards import TracingContext as TracingContext
    from torch._guards import tracing as tracing

    # Options of torch.compile's modes.
    from torch._inductor import list_mode_options as list_mode_options

    # Inductor's calls of oneDNN, for the lowerings of packed weights.
    from torch._inductor import mkldnn_ir as mkldnn_ir

    # Inductor, with passes and options of this call only.
    from torch._inductor.compile_fx import compile_fx as compile_fx
    from torch._inductor.compile_fx import compile_fx_inner as compile_fx_inner

    # A pass with a key for Inductor's caches.
    from torch._inductor.custom_graph_pass import CustomGraphPass as CustomGraphPass

    # Inductor's decompositions: formulas are traced with the same.
    from torch._inductor.decomposition import select_decomp_table as select_decomp_table

    # Layouts and buffers in the lowerings of packed weights.
    from torch._inductor.ir import BaseView as BaseView
    from torch._inductor.ir import ExternKernel as ExternKernel
    from torch._inductor.ir import ExternKernelAlloc as ExternKernelAlloc
    from torch._inductor.ir import FixedLayout as FixedLayout
    from torch._inductor.ir import FlexibleLayout as FlexibleLayout
    from torch._inductor.ir import NoneLayout as NoneLayout
    from torch._inductor.ir import ReinterpretView as ReinterpretView
    from torch._inductor.ir import TensorBox as TensorBox

    # Registers those lowerings. Its module must be loaded before `select_decomp_table` is called.
    from torch._inductor.lowering import register_lowering as register_lowering

    # The node that is being lowered.
    from torch._inductor.virtualized import V as V

    # Strides of images in the lowerings.
    from torch._prims_common import make_channels_last_strides_for as make_channels_last_strides_for
    from torch.overrides import TorchFunctionMode

    # The stack of torch function modes, which is how regions enter, leave and step aside.
    function_mode_at: Callable[[int], TorchFunctionMode] = torch._C._get_function_stack_at
    count_function_modes: Callable[[], int] = torch._C._len_torch_function_stack
    pop_function_mode: Callable[[], TorchFunctionMode] = torch._C._pop_torch_function_stack
    push_function_mode: Callable[[TorchFunctionMode], None] = torch._C._push_on_torch_function_stack

    # The result of a oneDNN call in the lowerings.
    create_onednn_output: Callable[[Any], Any] = mkldnn_ir._create_output_node

    # Sizes in the lowerings, with SymPy's symbols.
    spell_sizes: Callable[[Any], list[Any]] = torch._inductor.utils.convert_shape_to_inductor

    # Options: Dynamo's limit on recompilations, AOTAutograd's cache, and all of Inductor's.
    dynamo_config: Any = torch._dynamo.config
    functorch_config: Any = torch._functorch.config
    inductor_config: Any = torch._inductor.config

    # `optimize` with all of its options, which differ between versions.
    optimize_with_all_options: Callable[..., Any] = torch._dynamo.eval_frame._optimize

    # Lets a control flow subgraph enter a region that the program around it has not entered.
    without_side_effect_checks: Callable[..., None] = (
        torch._dynamo.utils._disable_side_effect_safety_checks_for_current_subtracer
    )

    # The number that autograd gives the next operator, to find its backward.
    autograd_sequence_number: Callable[[], int] = torch.autograd._get_sequence_nr

    # The memory budget of the region that a node is from; older versions have no such regions.
    memory_budget_of: Callable[[torch.fx.Node], float | None] = getattr(
        torch.fx.traceback, "_get_memory_budget_annotation", lambda node: None
    )

    # Nested structures of arguments, results and options.
    pytree: Any = torch.utils._pytree

    # Runs operators on real tensors while a compiler is tracing.
    without_modes: Callable[[], AbstractContextManager[Any]] = (
        torch.utils._python_dispatch._disable_current_modes
    )

    # The address of a storage's own record, to which its weak references refer too. Bound once, as
    # it runs at every call.
    storage_address: Callable[[torch.UntypedStorage], int] = operator.attrgetter("_cdata")
except (ImportError, AttributeError) as error:
    raise unsupported_torch(error) from error

_COMPILING = threading.Lock()


@contextmanager
def as_compiling() -> Iterator[None]:
    """Set PyTorch's is_compiling flag, so that optimizers keep numbers in tensors. The flag is
    global to the process, so one thread traces at a time.
    """
    with _COMPILING:
        before = torch.compiler._is_compiling_flag
        torch.compiler._is_compiling_flag = True
        try:
            yield
        finally:
            torch.compiler._is_compiling_flag = before
