"""Rules for shapes of results, so that reading one seldom needs fake tensors or guards on whole shapes.

A rule gives None where it doesn't know. Sizes are expressed by sizes of inputs, so a branch on one becomes a guard on
a predicate over inputs. What a rule relies on (ranks of inputs, parameters of modules) is guarded here.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from framecap.graph.sizes import broadcast_size
from framecap.guards import Attr, EqualsGuard, Get, Item

from .region import Input, Op

if TYPE_CHECKING:
    from .region import Region

SAME = frozenset(
    [
        *"relu gelu silu tanh sigmoid exp log sqrt rsqrt sin cos neg abs dropout softmax log_softmax layer_norm rms_norm".split(),
        *"batch_norm group_norm contiguous clone detach to float double half bfloat16 type type_as".split(),
        *"cumsum tril triu roll flip requires_grad_ leaky_relu elu relu6 softplus mish hardtanh invert square floor".split(),
        *"ceil round isnan isinf isin logical_not alpha_dropout normalize nan_to_num masked_fill_ add_ sub_ mul_".split(),
        *"div_ copy_ fill_ zero_ clamp_ relu_ pow_ long int bool zeros_like ones_like rand_like".split(),
        *"randn_like empty_like full_like".split(),
    ]
)
"""Operators whose result has the shape of their first operand."""
BROADCAST = frozenset(
    [
        *"add sub mul div truediv floordiv pow eq ne lt le gt ge and_ or_ xor maximum minimum where mod fmod".split(),
        *"iadd isub imul itruediv ifloordiv ipow masked_fill clamp".split(),
    ]
)
MODULES: dict[type, str] = {
    nn.Linear: "linear",
    nn.Embedding: "embedding",
    **dict.fromkeys(
        (nn.Dropout, nn.LayerNorm, nn.GELU, nn.ReLU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softmax, nn.BatchNorm1d), "relu"
    ),
    **dict.fromkeys((nn.BatchNorm2d, nn.BatchNorm3d, nn.GroupNorm, nn.LeakyReLU, nn.ELU, nn.ReLU6), "relu"),
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d), "conv"),
}
FUNCTIONS: dict[Any, str] = {
    F.scaled_dot_product_attention: "attention",
    **dict.fromkeys((F.conv1d, F.conv2d, F.conv3d, F.max_pool2d, F.avg_pool2d), "conv"),
}
Shape = list[Any] | None
"""One entry for each dimension: an int, a number Op over inputs, or None where the size isn't known."""


def shape_of(tx: Region, ref: Any) -> Shape:
    """The shape of tensor ``ref`` by rule, or None if not even its rank is known."""
    known = tx.shapes
    stack: list[tuple[Any, bool]] = [(ref, False)]
    while stack:
        item, ready = stack.pop()
        if id(item) in known:
            continue
        if isinstance(item, Input):
            _remember(tx, item, _input_shape(tx, item))
            continue
        operands = [a for a in flat(item.args) if isinstance(a, (Op, Input)) and not is_number(a)]
        if not ready:
            stack.append((item, True))
            stack.extend((a, False) for a in operands)
            continue
        _remember(tx, item, _rule(tx, item, lambda a: [] if not isinstance(a, (Op, Input)) or is_number(a) else known.get(id(a))))
    return known[id(ref)]


def _remember(tx: Region, item: Any, shape: Shape) -> None:
    """Cache a shape for as long as the guards that it relies on stand."""
    tx.shapes[id(item)] = shape
    tx.undo_later(lambda: tx.shapes.pop(id(item), None) and None)


def flat(args: Any) -> list[Any]:
    return [leaf for a in args for leaf in (flat(a) if isinstance(a, (tuple, list)) else [a])]


def is_number(ref: Any) -> bool:
    if isinstance(ref, Input):
        return isinstance(ref.example, (int, float, complex))
    return bool(ref.scalar and ref.target is not operator.getitem)


def _input_shape(tx: Region, item: Input) -> Shape:
    if not isinstance(item.example, torch.Tensor):
        return [] if is_number(item) else None
    rank = item.example.dim()
    tx.guard(EqualsGuard(Get(item.source, "ndim"), rank, where=tx.where))
    return [size_op(item, i) for i in range(rank)]


def size_op(item: Input, dim: int) -> Op:
    """A number: the size of an input. Not part of the graph unless it is used there."""
    op = Op("call_method", "size", (item, dim), {})
    op.scalar = True
    return op


def name_of(op: Op) -> str:
    """The kind of an operator, whether called as a function, method or module."""
    if op.op == "call_module":
        return MODULES.get(type(op.target.example), "")
    if op.op == "call_method":
        return str(op.target)
    return FUNCTIONS.get(op.target) or str(getattr(op.target, "__name__", ""))


def _rule(tx: Region, op: Op, of: Any) -> Shape:
    name = name_of(op)
    args, kwargs = op.args, op.kwargs
    if not args or kwargs.get("out") is not None:
        return None
    first: Shape = of(args[0]) if isinstance(args[0], (Op, Input)) else None
    if name in SAME:
        return first
    if name in BROADCAST:
        return _broadcast([of(a) for a in args])
    handler = HANDLERS.get(name)
    return handler(tx, op, first, of) if handler is not None else None


def _broadcast(shapes: list[Shape]) -> Shape:
    if any(s is None for s in shapes):
        return None
    rank = max(len(s) for s in shapes if s is not None)
    return [_broadcast_sizes([s[i - rank + len(s)] for s in shapes if s and i - rank + len(s) >= 0]) for i in range(rank)]


def _broadcast_sizes(sizes: list[Any]) -> Any:
    fixed = [s for s in sizes if isinstance(s, int) and s != 1]
    if fixed:
        return fixed[0]
    open_sizes: list[Any] = []
    for size in sizes:
        if size != 1 and not any(_same(size, other) for other in open_sizes):
            open_sizes.append(size)
    if not open_sizes:
        return 1
    result = open_sizes[0]
    for size in open_sizes[1:]:
        result = number(broadcast_size, result, size)
    return result


def _same(a: Any, b: Any) -> bool:
    """Whether two sizes are certainly equal: one expression."""
    if isinstance(a, Op) and isinstance(b, Op) and a.target == b.target == "size":
        return a.args[0] is b.args[0] and a.args[1] == b.args[1]
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


def _sizes(values: Any) -> list[Any]:
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        values = values[0]
    return [v if isinstance(v, Op) or (isinstance(v, (int, Input)) and v != -1) else None for v in values]


def _view(tx: Region, op: Op, first: Shape, of: Any) -> Shape:
    if any(isinstance(a, torch.dtype) for a in op.args[1:]) or op.kwargs or len(op.args) < 2:
        return None
    given = op.args[1] if len(op.args) == 2 and isinstance(op.args[1], (tuple, list)) else op.args[1:]
    sizes = _sizes(op.args[1:])
    open_dims = [i for i, size in enumerate(sizes) if size is None]
    if len(open_dims) == 1 and type(given[open_dims[0]]) is int and first is not None:
        sizes[open_dims[0]] = _remaining(first, [size for size in sizes if size is not None])
    return sizes


def _remaining(whole: list[Any], others: list[Any]) -> Any:
    """The size written as -1: the product of ``whole`` over that of ``others``, with what is in both cancelled."""
    rest = list(whole)
    divisors = []
    for size in others:
        match = next((i for i, mine in enumerate(rest) if _same(mine, size)), None)
        if match is None:
            divisors.append(size)
        else:
            del rest[match]
    product: Any = 1
    for size in rest:
        product = size if product == 1 else number(operator.mul, product, size)
    for size in divisors:
        product = number(operator.floordiv, product, size) if size != 0 else None
    return product


def _expand(tx: Region, op: Op, first: Shape, of: Any) -> Shape:
    if first is None or op.kwargs:
        return None
    sizes = _sizes(op.args[1:])
    offset = len(sizes) - len(first)
    return [s if s is not None else (first[i - offset] if i >= offset else None) for i, s in enumerate(sizes)]


def _dims(op: Op, rank: int, *names: str) -> list[int] | None:
    """Dimension arguments as indices from the front."""
    given = list(op.args[1:]) + [op.kwargs[n] for n in names if n in op.kwargs]
    if len(given) == 1 and isinstance(given[0], (tuple, list)):
        given = list(given[0])
    if any(type(d) is not int for d in given):
        return None
    return [d + rank if d < 0 else d for d in given]


def _transpose(tx: Region, op: Op, first: Shape, of: Any) -> Shape:
    if first is None:
        return None
    dims = _dims(op, len(first), "dim0", "dim1")
    if dims is None or len(dims) != 2:
        return [None] * len(first)
    result = list(first)
    result[dims[0]], result[dims[1]] = first[dims[1]], first[dims[0]]
    return result


def _permute(tx: Region, op: Op, first: Shape, of: Any) -> Shape:
    dims = _dims(op, len(first), "dims") if first is not None else None
    return None if dims is None or first is None or len(dims) != len(first) else [first[d] for d in dims]


def _unsqueeze(tx: Region, op: Op, first: Shape, of: Any) -> Shape:
    dims = _dims(op, len(first) + 1, "dim") if first is not None else None
    if dims is None or first is None or len(dims) != 1:
        return None
    return [*first[: dims[0]], 1, *first[dims[0] :]]


def _flatten(tx: Region, op: Op, first: Shape, of: Any) -> Shape:
    if first is None:
        return None
    dims = _dims(op, len(first), "start_dim", "end_dim")
    if dims is None or len(first) == 0:
        return None
    start, end = (*dims, *(0, len(first) - 1)[len(dims) :])
    product: Any = 1
    for size in first[start : end + 1]:
        product = number(operator.mul, product, size) if product != 1 else size
    return [*first[:start], product, *first[end + 1 :]]


def _reduce(tx: Region, op: Op, first: Shape, of: Any) -> Shape:
    if first is None or "dtype" in op.kwargs:
        return None
    keep = op.kwargs.get("keepdim", False)
    rest = op.args[1:]
    if len(rest) == 2 and isinstance(rest[1], bool):
        keep, rest = rest[1], rest[:1]
    dims = rest[0] if rest else op.kwargs.get("dim")
    if dims is None:
        return [] if not keep else [1] * len(first)
    dims = [dims] if type(dims) is int else dims
    if not isinstance(dims, (tuple, list)) or any(type(d) is not int for d in dims) or type(keep) is not bool or len(rest) > 1:
        return None
    gone = {d % len(first) for d in dims} if first else set()
    return [1 if i in gone else s for i, s in enumerate(first) if keep or i not in gone]


def _linear(tx: Region, op: Op, first: Shape, of: Any) -> Shape:
    if not first:
        return None
    if op.op == "call_module":
        source = Item(Attr(op.target.source, "_parameters"), "weight")
        out = op.target.example.weight.shape[0]
        tx.guard(EqualsGuard(Get(source, "shape"), op.target.example.weight.shape, where=tx.where))
        return [*first[:-1], out]
    weight = of(op.args[1]) if len(op.args) > 1 else None
    return [*first[:-1], weight[0] if weight is not None and len(weight) == 2 else None] if weight != [] else None


def _embedding(tx: Region, op: Op, first: Shape, of: Any) -> Shape:
    if first is None:
        return None
    if op.op != "call_module":
        weight = of(op.args[1]) if len(op.args) > 1 else None
        return [*first, weight[1]] if weight is not None and len(weight) == 2 else None
    source = Item(Attr(op.target.source, "_parameters"), "weight")
    tx.guard(EqualsGuard(Get(source, "shape"), op.target.example.weight.shape, where=tx.where))
    return [*first, op.target.example.weight.shape[1]]


def number(function: Any, a: Any, b: Any) -> Any:
    """``function(a, b)`` on sizes: an int, a number operator, or None if one isn't known."""
    if a is None or b is None:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return function(a, b)
    op = Op("call_function", function, (a, b), {})
    op.scalar = True
    return op


def _convolution(tx: Region, op: Op, first: Shape, of: Any) -> Shape:
    if not first:
        return None
    unknown: list[Any] = [first[0] if len(first) > 3 else None, *([None] * (len(first) - 1))]
    if op.op != "call_module" or type(op.target.example) not in (nn.Conv1d, nn.Conv2d, nn.Conv3d):
        return unknown
    module = op.target.example
    settings = [getattr(module, name) for name in ("padding", "dilation", "kernel_size", "stride")]
    if any(not isinstance(s, tuple) for s in settings) or len(first) != len(module.kernel_size) + 2:
        return unknown
    for name in ("out_channels", "padding", "dilation", "kernel_size", "stride"):
        tx.guard(EqualsGuard(Attr(op.target.source, name), getattr(module, name), where=tx.where))
    source = Item(Attr(op.target.source, "_parameters"), "weight")
    tx.guard(EqualsGuard(Get(source, "shape"), module.weight.shape, where=tx.where))
    sizes = []
    for size, padding, dilation, kernel, stride in zip(first[2:], *settings, strict=True):
        reach = number(operator.add, size, 2 * padding - dilation * (kernel - 1) - 1)
        sizes.append(number(operator.add, number(operator.floordiv, reach, stride), 1))
    return [first[0], module.weight.shape[0], *sizes]


def _attention(tx: Region, op: Op, first: Shape, of: Any) -> Shape:
    value = of(op.args[2]) if len(op.args) > 2 else None
    return None if not first or not value else [*first[:-1], value[-1]]


def _matmul(tx: Region, op: Op, first: Shape, of: Any) -> Shape:
    second = of(op.args[1]) if len(op.args) > 1 else None
    if first is None or second is None or len(first) < 2 or len(second) < 2:
        return None
    batch = _broadcast([first[:-2], second[:-2]])
    return None if batch is None else [*batch, first[-2], second[-1]]


def _addmm(tx: Region, op: Op, first: Shape, of: Any) -> Shape:
    if len(op.args) != 3:
        return None
    left, right = of(op.args[1]), of(op.args[2])
    return None if not left or not right else [*left[:-1], right[-1]]


def _filled(tx: Region, op: Op, first: Shape, of: Any) -> Shape:
    sizes = op.args[:1] if isinstance(op.args[0], (tuple, list)) or name_of(op) == "full" else op.args
    return None if "size" in op.kwargs else _sizes(sizes)


def _new(tx: Region, op: Op, first: Shape, of: Any) -> Shape:
    return _sizes(op.args[1:2] if isinstance(op.args[1], (tuple, list)) else op.args[1:]) if len(op.args) > 1 else None


def _tensor(tx: Region, op: Op, first: Shape, of: Any) -> Shape:
    data = op.args[0]
    if isinstance(data, (list, tuple)):
        return [len(data)] if all(isinstance(item, (int, float, Op)) for item in data) else None
    return [] if isinstance(data, (int, float)) else None


def _range(tx: Region, op: Op, first: Shape, of: Any) -> Shape:
    end = op.args[0]
    whole = type(end) is int or (isinstance(end, Op) and end.target == "size")  # a float end is rounded up
    return [end if len(op.args) == 1 and whole else None]


def _take_along(tx: Region, op: Op, first: Shape, of: Any) -> Shape:
    shape: Shape = of(op.args[2]) if len(op.args) > 2 else None
    return shape


def _cat(tx: Region, op: Op, first: Shape, of: Any) -> Shape:
    if not isinstance(op.args[0], (tuple, list)) or not op.args[0]:
        return None
    parts = [of(a) for a in op.args[0]]
    parts = [p for p in parts if p != [0]] or parts  # cat passes over empty tensors of one dimension
    dim = op.args[1] if len(op.args) > 1 else op.kwargs.get("dim", 0)
    if any(p is None for p in parts) or type(dim) is not int or not parts[0] or len({len(p) for p in parts}) != 1:
        return None
    at = dim % len(parts[0])
    total: Any = 0
    for part in parts:
        total = number(operator.add, total, part[at]) if total != 0 else part[at]
    return [total if i == at else s for i, s in enumerate(parts[0])]


def sliced(size: int, start: int | None, stop: int | None, step: int | None) -> int:
    """How many of ``size`` items a slice takes."""
    return len(range(size)[start:stop:step])


def _slice_size(size: Any, key: slice) -> Any:
    parts = (key.start, key.stop, key.step)
    if parts == (None, None, None):
        return size
    if size is None or any(not (p is None or type(p) is int or (isinstance(p, (Op, Input)) and is_number(p))) for p in parts):
        return None
    if type(size) is int and all(p is None or type(p) is int for p in parts):
        return sliced(size, *parts)
    op = Op("call_function", sliced, (size, *parts), {})
    op.scalar = True
    return op


def _getitem(tx: Region, op: Op, first: Shape, of: Any) -> Shape:
    owner, key = op.args
    if isinstance(owner, Op) and name_of(owner) in ("split", "chunk"):
        shape: Shape = of(owner)
        return shape
    if first is None or (isinstance(key, (Op, Input)) and not is_number(key)):
        return None
    keys = list(key) if isinstance(key, tuple) else [key]
    if any(not (k is None or k is ... or type(k) is int or isinstance(k, slice)) for k in keys):
        return None
    taken = sum(k is not None and k is not ... for k in keys)
    if taken > len(first):
        return None
    if ... not in keys:
        keys.append(...)
    result: list[Any] = []
    at = 0
    for k in keys:
        if k is None:
            result.append(1)
        elif k is ...:
            result += first[at : at + len(first) - taken]
            at += len(first) - taken
        elif isinstance(k, slice):
            result.append(_slice_size(first[at], k))
            at += 1
        else:
            at += 1
    return result


def _split(tx: Region, op: Op, first: Shape, of: Any) -> Shape:
    if first is None:
        return None
    dim = op.kwargs.get("dim", op.args[2] if len(op.args) > 2 else 0)
    if type(dim) is not int or not first:
        return [None] * len(first)
    return [None if i == dim % len(first) else s for i, s in enumerate(first)]


def part_count(tx: Region, op: Op) -> Any:
    """How many tensors split, chunk or unbind gives: an int, a number operator, or None if no rule says."""
    name = name_of(op)
    if name not in ("split", "chunk", "unbind") or not op.args or not isinstance(op.args[0], (Op, Input)):
        return None
    shape = shape_of(tx, op.args[0])
    at = 1 if name == "unbind" else 2
    dim = op.kwargs.get("dim", op.args[at] if len(op.args) > at else 0)
    if not shape or type(dim) is not int or not -len(shape) <= dim < len(shape):
        return None
    size = shape[dim]
    if name == "unbind":
        return size
    names = ("split_size_or_sections", "split_size", "chunks")
    part = op.args[1] if len(op.args) > 1 else next((op.kwargs[key] for key in names if key in op.kwargs), None)
    if isinstance(part, (tuple, list)):
        return len(part)
    if type(part) is not int or part <= 0:
        return None
    return number(split_count if name == "split" else chunk_count, size, part)


def split_count(size: int, length: int) -> int:
    """Number of parts of at most ``length`` that torch.split gives."""
    return max(-(-size // length), 1)


def chunk_count(size: int, chunks: int) -> int:
    """Number of parts that torch.chunk gives, which may be fewer than asked for."""
    return chunks if size == 0 else -(-size // -(-size // chunks))


def _stack(tx: Region, op: Op, first: Shape, of: Any) -> Shape:
    if not isinstance(op.args[0], (tuple, list)) or not op.args[0]:
        return None
    shape = of(op.args[0][0])
    return None if shape is None else [None] * (len(shape) + 1)


HANDLERS: dict[str, Any] = {
    **dict.fromkeys(("view", "reshape"), _view),
    "expand": _expand,
    **dict.fromkeys(("transpose", "swapaxes"), _transpose),
    "permute": _permute,
    "unsqueeze": _unsqueeze,
    "flatten": _flatten,
    **dict.fromkeys(("sum", "mean", "amax", "amin", "all", "any", "argmax", "argmin"), _reduce),
    "linear": _linear,
    "embedding": _embedding,
    "conv": _convolution,
    "attention": _attention,
    **dict.fromkeys(("matmul", "bmm"), _matmul),
    **dict.fromkeys(("addmm", "baddbmm"), _addmm),
    **dict.fromkeys(("zeros", "ones", "empty", "full", "rand", "randn"), _filled),
    **dict.fromkeys(("new_zeros", "new_ones", "new_full", "new_empty"), _new),
    "arange": _range,
    "tensor": _tensor,
    "gather": _take_along,
    **dict.fromkeys(("cat", "concat"), _cat),
    "getitem": _getitem,
    **dict.fromkeys(("split", "chunk"), _split),
    "stack": _stack,
}
