"""Tensor functions, methods and leaf modules as nodes: which are operators, what they return, what they change."""

from __future__ import annotations

import inspect
import operator
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..errors import (
    AUTOGRAD,
    DATA_DEPENDENT,
    RANDOM_STATE,
    UNKNOWN_CALL,
    UNSUPPORTED_ARGUMENT,
    UNSUPPORTED_ATTRIBUTE,
    GraphBreak,
)
from ..tracing import metadata, rules
from ..tracing.region import Input, Op
from ..values.base import Args, Kwargs, Value
from ..values.constant import UNKNOWN, Const, constant_of, from_real, is_immutable, real_call
from ..values.module import TUPLE_RESULT, ModuleValue, is_leaf_class
from ..values.number import NumberValue
from ..values.sequence import ListValue
from ..values.tensor import TensorValue
from ..values.tensor_tuple import TensorTuple
from .torch_names import (
    AUTOGRAD_METHODS,
    DATA_METHODS,
    FACTORIES,
    FRESH,
    FRESH_MODULES,
    NATIVE_METHODS,
    PAIRS,
    PAIRS_WITH_DIM,
    RANDOM,
)

if TYPE_CHECKING:
    from ..symbolic.tracer import Tracer as Region

@lru_cache(maxsize=1)
def _overridable() -> frozenset[Any]:
    from torch.overrides import get_overridable_functions

    found: set[Any] = set()
    for functions in get_overridable_functions().values():
        found.update(f for f in functions if f.__hash__ is not None)
    return frozenset(found)


NOT_OPERATORS = {
    torch.Tensor.backward, torch.nn.init.calculate_gain if hasattr(torch.nn.init, "calculate_gain") else None,
    torch.manual_seed, torch.autograd.grad,
}  # fmt: skip


def is_torch_op(function: Any) -> bool:
    """Whether a call of ``function`` is one node of the graph."""
    try:
        return (function in FACTORIES or function in _overridable()) and function not in NOT_OPERATORS
    except TypeError:
        return False


def tensor_method(kind: type, name: str) -> Any:
    """The method ``name`` of tensors, or None."""
    found = getattr(kind, name, None)
    if found is None or not callable(found) or isinstance(found, type):
        return None
    return found


# Calls


def call_tensor_method(tx: Region, tensor: TensorValue, name: str, args: Args, kwargs: Kwargs) -> Value:
    """``tensor.name(*args, **kwargs)``."""
    special = _METHODS.get(name)
    if special is not None:
        result = special(tx, tensor, args, kwargs)
        if result is not None:
            assert isinstance(result, Value)
            return result
    if name in ("item", "tolist") and not args and (known := tx.known_value(tensor.ref)) is not None:
        return from_real(real_call(getattr(known, name)))
    if name in DATA_METHODS:
        raise GraphBreak(DATA_DEPENDENT, f"Tensor.{name}() gives data of {tensor.describe()} to Python")
    if name in AUTOGRAD_METHODS:
        raise GraphBreak(AUTOGRAD, f"Tensor.{name}()")
    if name in NATIVE_METHODS or (name.startswith("_") and not name.startswith("__")):
        raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"Tensor.{name}() changes or shows the tensor object itself")
    if name == "type" and not args and not kwargs:
        raise GraphBreak(UNSUPPORTED_ATTRIBUTE, "Tensor.type() gives a string")
    operator_function = _DUNDERS.get(name)
    if operator_function is not None and not kwargs:
        return record(tx, "call_function", operator_function, [tensor, *args], {}, None)
    mutates = tensor if name.endswith("_") and not name.endswith("__") else None
    if name.startswith("__i") and name not in ("__invert__", "__int__", "__index__", "__iter__"):
        mutates = tensor
    if name == "__setitem__":
        mutates = tensor
    if "generator" in kwargs:
        raise GraphBreak(RANDOM_STATE, f"Tensor.{name}() draws from a generator of its own")
    result = record(tx, "call_method", name, [tensor, *args], kwargs, mutates, random=name in RANDOM)
    return result


def call_torch(tx: Region, function: Any, args: Args, kwargs: Kwargs) -> Value:
    """A call of a torch function as a node."""
    name = getattr(function, "__name__", "")
    if type(function) in METHOD_DESCRIPTORS and args and isinstance(args[0], TensorValue):
        return call_tensor_method(tx, args[0], name, args[1:], kwargs)
    if name in DATA_METHODS and function not in FACTORIES:
        raise GraphBreak(DATA_DEPENDENT, f"torch.{name}() gives data of a tensor to Python")
    if name in AUTOGRAD_METHODS:
        raise GraphBreak(AUTOGRAD, f"torch.{name}()")
    if name in NATIVE_METHODS:
        raise GraphBreak(UNKNOWN_CALL, f"torch.{name}()")
    generator = kwargs.get("generator")
    if generator is not None and not (isinstance(generator, Const) and generator.value is None):
        raise GraphBreak(RANDOM_STATE, f"{name}() draws from a generator of its own")
    mutates = _mutated(tx, function, name, args, kwargs)
    impure = name in ("batch_norm", "instance_norm") and _updates_statistics(tx, function, args, kwargs)
    if name in ("embedding", "embedding_bag") and _argument(function, args, kwargs, "max_norm") is not None:
        impure = True
    random = name in RANDOM and not _switched_off(tx, function, args, kwargs)
    return record(tx, "call_function", function, args, kwargs, mutates, random=random, impure=impure)


METHOD_DESCRIPTORS = (type(torch.Tensor.add), type(torch.Tensor.__add__), type(torch.Tensor.__getitem__))


@cache
def _parameters(function: Any) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def _argument(function: Any, args: Args, kwargs: Kwargs, name: str) -> Value | None:
    """The argument given for parameter ``name``, or None (also for a given None)."""
    found = kwargs.get(name)
    names = _parameters(function)
    if found is None and name in names and names.index(name) < len(args):
        found = args[names.index(name)]
    return None if found is None or (isinstance(found, Const) and found.value is None) else found


def _mutated(tx: Region, function: Any, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    out = kwargs.get("out")
    if out is not None and not (isinstance(out, Const) and out.value is None):
        if not isinstance(out, TensorValue):
            raise GraphBreak(UNSUPPORTED_ARGUMENT, f"out= of {name}() is {out.describe()}")
        return out
    if name.endswith("_") and not name.endswith("__") and args:
        return args[0]
    inplace = _argument(function, args, kwargs, "inplace")
    if inplace is not None and inplace.truth(tx):
        return args[0] if args else kwargs.get("input")
    return None


def _updates_statistics(tx: Region, function: Any, args: Args, kwargs: Kwargs) -> bool:
    flag = _argument(function, args, kwargs, "training") or _argument(function, args, kwargs, "use_input_stats")
    return flag is not None and flag.truth(tx) and _argument(function, args, kwargs, "running_mean") is not None


def _switched_off(tx: Region, function: Any, args: Args, kwargs: Kwargs) -> bool:
    """Whether a random operator is told not to draw: training=False, dropout_p=0.0."""
    names = _parameters(function)
    for name in ("training", "train"):
        if name in names:
            flag = _argument(function, args, kwargs, name)
            return flag is not None and not flag.truth(tx)
    probability = _argument(function, args, kwargs, "dropout_p")
    if getattr(function, "__name__", "") == "scaled_dot_product_attention":
        return probability is None or constant_of(tx, probability) == 0.0
    return False


def module_result(tx: Region, module: ModuleValue, args: Args, kwargs: Kwargs) -> Value:
    """A call of a leaf module as a node."""
    cls = module.cls
    impure = False
    random = not is_leaf_class(cls)  # what a leaf of the user's choice does is not known
    if issubclass(cls, (nn.modules.dropout._DropoutNd, nn.RNNBase, nn.MultiheadAttention, nn.RReLU)):
        random = module.getattr(tx, "training").truth(tx)
    if issubclass(cls, (nn.modules.batchnorm._NormBase,)):
        training = module.getattr(tx, "training").truth(tx)
        impure = training and module.getattr(tx, "track_running_stats").truth(tx)
    if issubclass(cls, (nn.Embedding, nn.EmbeddingBag)):
        limit = module.getattr(tx, "max_norm")
        impure = not (isinstance(limit, Const) and limit.value is None)
    mutates = None
    if hasattr(module.real, "inplace") and module.getattr(tx, "inplace").truth(tx):
        mutates = args[0] if args else None
    result = record(tx, "call_module", module.input(tx), args, kwargs, mutates, random=random, impure=impure)
    return result


# Recording


def record(
    tx: Region,
    op: str,
    target: Any,
    args: Args,
    kwargs: Kwargs,
    mutates: Value | None,
    *,
    random: bool = False,
    impure: bool = False,
) -> Value:
    """Add a node and give the value of its result."""
    graph_args = [a.as_argument(tx) for a in args]
    graph_kwargs = {k: v.as_argument(tx) for k, v in kwargs.items()}
    keep = False
    if mutates is not None:
        if not isinstance(mutates, TensorValue):
            raise GraphBreak(UNSUPPORTED_ARGUMENT, f"{mutates.describe()} is changed in place")
        keep = True
        impure = impure or not is_fresh(mutates.ref)
    new = tx.add_op(op, target, graph_args, graph_kwargs, keep=keep, impure=impure, random=random)
    if not isinstance(target, Input) and target is operator.setitem:
        return Const(None)
    return result_value(tx, new)


def is_fresh(ref: Any) -> bool:
    """Whether the tensor ``ref`` was made in the region and shares memory with nothing from outside."""
    while isinstance(ref, Op):
        if ref.op == "call_module":
            return isinstance(ref.target.example, FRESH_MODULES) or (
                isinstance(ref.target.example, nn.ReLU) and not ref.target.example.inplace
            )
        name = ref.target if isinstance(ref.target, str) else getattr(ref.target, "__name__", "")
        if ref.keep and ref.args and not ref.random and (name.endswith("_") or name in _INPLACE_NAMES):
            ref = ref.args[0]
            continue
        return name in FRESH and "out" not in ref.kwargs and not ref.kwargs.get("inplace", False)
    return False


_INPLACE_NAMES = {"iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul", "iand", "ior", "ixor"}


def result_value(tx: Region, op: Op) -> Value:
    """The value of an operator's result; its kind by rule or schema where possible, else by fake tensors."""
    if returns_tensor(op):
        return TensorValue(op)
    parts = rules.part_count(tx, op)
    if parts is not None:
        if not isinstance(parts, int):
            parts = NumberValue(tx.adopt(parts), int).concrete(tx)
        items = [TensorValue(tx.add_op("call_function", operator.getitem, (op, i), scalar=True)) for i in range(parts)]
        return TensorTuple(op, list(items), tuple)
    pair = _pair_type(op)
    if pair is not None:
        return TensorTuple(
            op, [TensorValue(tx.add_op("call_function", operator.getitem, (op, i), scalar=True)) for i in (0, 1)], pair
        )
    if tx.without_examples and (op.op == "call_module" or tx.is_leaf_function(op.target)):
        return TensorValue(op)  # a leaf of the user's choice: taken to return one tensor, as there is no way to know
    fake = metadata.fake_of(tx, op)
    return structured(tx, op, fake)


def structured(tx: Region, op: Op, fake: Any) -> Value:
    """The value of a result that looks like ``fake``."""
    if isinstance(fake, torch.Tensor):
        return TensorValue(op)
    if isinstance(fake, (tuple, list)) and not isinstance(fake, torch.Size):
        items: list[Value] = []
        for i, part in enumerate(fake):
            item = tx.add_op("call_function", operator.getitem, (op, i), scalar=True)
            item.fake = (part,)
            items.append(structured(tx, item, part))
        return ListValue(items) if isinstance(fake, list) else TensorTuple(op, items, type(fake))
    if is_immutable(fake) and not op.keep:
        if isinstance(fake, (int, float)) and not isinstance(fake, bool):
            return NumberValue(op, type(fake))
        return Const(fake)
    raise GraphBreak(UNKNOWN_CALL, f"an operator returns an object of type {type(fake).__name__}")


def returns_tensor(op: Op) -> bool:
    """Whether the result is certainly one tensor."""
    if op.op == "call_module":
        module = op.target.example
        if not is_leaf_class(type(module)):
            return False
        return not isinstance(module, TUPLE_RESULT) and not getattr(module, "return_indices", False)
    if op.op == "call_method":
        return _single_tensor(op.target)
    target = op.target
    if target in FACTORIES or target is getattr:
        return True
    module = getattr(target, "__module__", None)
    if module == "_operator":
        return target is not operator.getitem or True
    name = getattr(target, "__name__", "")
    if module in ("torch.nn.functional", "torch.nn.init") and inspect.isfunction(target):
        return _annotated_tensor(target) or _single_tensor(name)
    if isinstance(target, (type(torch.add), METHOD_DESCRIPTORS)):
        return _single_tensor(name)
    return _annotated_tensor(target)


@cache
def _annotated_tensor(function: Any) -> bool:
    annotation = getattr(function, "__annotations__", {}).get("return")
    return annotation is torch.Tensor or annotation == "Tensor" or annotation == "torch.Tensor"


@cache
def _single_tensor(name: str) -> bool:
    """By torch's schemas: every overload of aten::name returns exactly one Tensor."""
    if name in _TENSOR_METHODS:
        return True
    try:
        schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
    except RuntimeError:
        return False
    schemas = [s for s in schemas if s.overload_name not in ("out",) and not s.overload_name.endswith("_out")]
    tensors = [
        s for s in schemas if any(str(a.type) in ("Tensor", "List[Tensor]", "Optional[Tensor]") for a in s.arguments)
    ]
    tensors = tensors or schemas
    return bool(tensors) and all(len(s.returns) == 1 and str(s.returns[0].type) == "Tensor" for s in tensors)


_TENSOR_METHODS = frozenset(
    [
        "to",
        "type",
        "cpu",
        "cuda",
        "float",
        "double",
        "half",
        "bfloat16",
        "int",
        "long",
        "bool",
        "short",
        "byte",
        "char",
        "new_tensor",
        "new_zeros",
        "new_ones",
        "type_as",
    ]
)


def _pair_type(op: Op) -> Any:
    name = op.target if isinstance(op.target, str) else getattr(op.target, "__name__", "")
    if name in PAIRS:
        return getattr(torch.return_types, name)
    if name in PAIRS_WITH_DIM and (
        isinstance(op.kwargs.get("dim"), int) or (len(op.args) > 1 and isinstance(op.args[1], int))
    ):
        return getattr(torch.return_types, name)
    return None


# Methods that tell of the tensor rather than compute


def _size(tx: Region, tensor: TensorValue, args: Args, kwargs: Kwargs) -> Value | None:
    dim = args[0] if args else kwargs.get("dim")
    if dim is None or (isinstance(dim, Const) and dim.value is None):
        return tensor.shape(tx)
    real = constant_of(tx, dim)
    if not isinstance(real, int):
        raise GraphBreak(UNSUPPORTED_ATTRIBUTE, "size() by a dimension that isn't constant")
    return tensor.size(tx, real)


def _dim(tx: Region, tensor: TensorValue, args: Args, kwargs: Kwargs) -> Value | None:
    return Const(tensor.rank(tx))


def _numel(tx: Region, tensor: TensorValue, args: Args, kwargs: Kwargs) -> Value | None:
    return NumberValue(tx.add_op("call_method", "numel", (tensor.ref,), scalar=True), int)


def _dtype_question(name: str) -> Any:
    def answer(tx: Region, tensor: TensorValue, args: Args, kwargs: Kwargs) -> Value | None:
        return Const(getattr(torch.empty((), dtype=tensor.read(tx, "dtype"), device="meta"), name)())

    return answer


def _layout_question(name: str) -> Any:
    def answer(tx: Region, tensor: TensorValue, args: Args, kwargs: Kwargs) -> Value | None:
        from framecap.guards import Call, EqualsGuard

        if kwargs or not isinstance(tensor.ref, Input):
            raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"Tensor.{name}() of a result")
        reals = [constant_of(tx, a) for a in args]
        if any(r is UNKNOWN for r in reals):
            raise GraphBreak(UNSUPPORTED_ATTRIBUTE, f"Tensor.{name}() with arguments that aren't constant")
        asker = _asker(name, tuple(reals))
        value = asker(tensor.ref.example)
        tx.guard(EqualsGuard(Call(asker, tensor.ref.source), value, where=tx.where))
        return from_real(value)

    return answer


@cache
def _asker(name: str, args: tuple[Any, ...]) -> Any:
    return lambda tensor: getattr(tensor, name)(*args)


def _getitem(tx: Region, tensor: TensorValue, args: Args, kwargs: Kwargs) -> Value | None:
    return tensor.getitem(tx, args[0])


def _setitem(tx: Region, tensor: TensorValue, args: Args, kwargs: Kwargs) -> Value | None:
    tensor.setitem(tx, args[0], args[1])
    return Const(None)


_METHODS: dict[str, Any] = {
    "size": _size, "dim": _dim, "ndimension": _dim, "numel": _numel, "nelement": _numel, "__getitem__": _getitem,
    "__setitem__": _setitem, "is_floating_point": _dtype_question("is_floating_point"), "is_complex": _dtype_question("is_complex"),
    "is_signed": _dtype_question("is_signed"), "element_size": _dtype_question("element_size"),
    "stride": _layout_question("stride"), "is_contiguous": _layout_question("is_contiguous"),
    "get_device": _layout_question("get_device"),
}  # fmt: skip
_DUNDERS: dict[str, Any] = {
    f"__{name}__": getattr(operator, function)
    for name, function in {
        "add": "add", "sub": "sub", "mul": "mul", "truediv": "truediv", "floordiv": "floordiv", "mod": "mod", "pow": "pow",
        "matmul": "matmul", "and": "and_", "or": "or_", "xor": "xor", "lshift": "lshift", "rshift": "rshift", "neg": "neg",
        "invert": "invert", "eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge",
    }.items()
}  # fmt: skip
