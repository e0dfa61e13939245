"""The region with what values need from above: wrapping objects, calling functions, recording tensor operators."""

from __future__ import annotations

import enum
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from framecap.guards import AbsentKeyGuard, DictOf, Get, Index, IsGuard, Item, Source
from framecap.guards import Const as ConstSource

from ..errors import DISABLED, IMPURE, UNKNOWN_CALL, GraphBreak
from ..models import builtins, operators, torch_ops
from ..models.registry import MODELS
from ..tracing.region import Input, Op, Region
from ..values.arity import run_model
from ..values.base import Args, Kwargs, Value
from ..values.constant import Const
from ..values.context_var import ContextVarValue
from ..values.function import BuiltinValue, CellValue, ClassValue, ClosureValue, FunctionConst
from ..values.instance import DELETED, EnumMember, InstanceValue
from ..values.module import ModuleValue, is_leaf_class
from ..values.sequence import TupleValue
from ..values.tensor import TensorValue
from .arguments import Signature, bind_arguments
from .wrap import wrap

if TYPE_CHECKING:
    from .frame import SymbolicFrame

EAGER_FUNCTIONS: set[Any] = set()
"""Functions that always run natively, by framecap.disable."""
LEAF_FUNCTIONS: set[Any] = set()
"""Functions that become one node, by framecap.allow_in_graph."""


NATIVE_PARTS = (
    "torch.optim", "torch._dynamo", "torch._compile", "torch._inductor", "torch.utils.data", "torch.autograd", "torch.distributed",
    "torch.profiler", "torch.onnx", "torch.export", "torch.fx", "torch.serialization", "torch.random", "torch.hub", "torch.jit",
    "torch.multiprocessing", "torch.func", "torch._functorch",
)  # fmt: skip
"""Packages of torch whose functions are called natively: what they do is more than computing tensors."""
NATIVE_BUT = frozenset(("is_scripting", "is_tracing"))


def native_part(function: Any) -> str | None:
    """The package of `NATIVE_PARTS` that ``function`` belongs to, or None."""
    module = getattr(function, "__module__", None) or ""
    if not module.startswith("torch.") or function.__name__ in NATIVE_BUT:
        return None
    return next((part for part in NATIVE_PARTS if module == part or module.startswith(f"{part}.")), None)


@dataclass(slots=True)
class BrokenCall:
    """A call whose callee broke: why the last time, and how often in a row."""

    cause: GraphBreak
    times: int = 1


class BrokenCalls:
    """The calls that broke, by the caller's code, the offset in it and the callee's code; forgotten with either code."""

    def __init__(self) -> None:
        self._calls: dict[tuple[int, int, int], tuple[Any, Any, BrokenCall]] = {}

    def get(self, caller: types.CodeType, offset: int, callee: types.CodeType) -> BrokenCall | None:
        known = self._calls.get((id(caller), offset, id(callee)))
        return known[2] if known is not None and known[0]() is caller and known[1]() is callee else None

    def note(self, caller: types.CodeType, offset: int, callee: types.CodeType, cause: GraphBreak) -> None:
        """One more time in a row that this call broke."""
        known = self.get(caller, offset, callee)
        key = (id(caller), offset, id(callee))

        def forget(_: Any) -> None:
            self._calls.pop(key, None)

        # A copy without the traceback, which would keep the frame's objects alive.
        call = BrokenCall(cause.again(), 1 if known is None else known.times + 1)
        self._calls[key] = (weakref.ref(caller, forget), weakref.ref(callee, forget), call)

    def forget(self, caller: types.CodeType, offset: int, callee: types.CodeType) -> None:
        """The call succeeded."""
        self._calls.pop((id(caller), offset, id(callee)), None)

    def clear(self) -> None:
        self._calls.clear()


class NoFrame(Exception):
    """A region without a real frame was asked for something of it: a fault of framecap's own."""


class Namespace:
    """A module's globals: the real dict, and what the region has stored in it."""

    def __init__(self, real: dict[str, Any], source: Source | None) -> None:
        self.real = real
        self.source = source
        self.stored: dict[str, Any] = {}

    def find(self, tx: Tracer, name: str) -> Value | None:
        """The value of a global, or None if there is none; its absence is then guarded."""
        if name in self.stored:
            found = self.stored[name]
            return None if found is DELETED else found
        if name not in self.real:
            if self.source is not None:
                tx.guard(AbsentKeyGuard(self.source, name, where=tx.where))
            return None
        if self.source is None:
            raise GraphBreak(UNKNOWN_CALL, f"the namespace of {name!r} can't be reached again")
        return tx.wrap(self.real[name], Item(self.source, name))

    def store(self, tx: Tracer, name: str, value: Any) -> None:
        before = self.stored

        def undo() -> None:
            self.stored = before

        tx.undo_later(undo)
        self.stored = {**before, name: value}
        tx.record("global", self, name, value)


class Tracer(Region):
    """See the module. One Tracer serves one attempt to capture one region."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.namespaces: dict[int, Namespace] = {}
        self.states: dict[int, Input] = {}
        self.size_ops: dict[Any, Op] = {}
        self.set_variables: dict[int, ContextVarValue] = {}
        self.run_code: Callable[..., Value] = _no_runner
        self.broken_calls = BrokenCalls()

    def is_library(self, code: types.CodeType) -> bool:
        """Whether code is Python's or torch's own: breaks are shown where the user's code calls it."""
        return False

    # Levels

    def is_leaf_module(self, module: ModuleValue) -> bool:
        """Whether a call of the module is one node."""
        return is_leaf_class(module.cls)

    def is_leaf_function(self, function: Any) -> bool:
        """Whether a call of a Python function of the user's is one node."""
        return function in LEAF_FUNCTIONS

    # Reads

    def wrap(self, real: Any, source: Source) -> Value:
        """The value of a real object found at ``source``; guards what is relied upon."""
        return wrap(self, real, source)

    def namespace_of(self, space: dict[str, Any], source: Source | None) -> Namespace:
        known = self.namespaces.get(id(space))
        if known is None:
            known = self.namespaces[id(space)] = Namespace(space, source)
        elif known.source is not None and source is not None and known.source != source:
            self.same(known.source, source)
        elif known.source is None:
            known.source = source
        return known

    def constant_key(self, key: Any) -> Value:
        """The value of a key of an outside dict, known by the guard on the dict's keys."""
        if isinstance(key, enum.Enum):
            return self.enum_member(key)
        if isinstance(key, type):
            return ClassValue(key)
        if isinstance(key, types.FunctionType):
            return FunctionConst(key)
        if type(key) is tuple:
            return TupleValue([self.constant_key(item) for item in key])
        return Const(key)

    def enum_member(self, member: Any) -> Value:
        return EnumMember(type(member), member, ConstSource(member))

    def state_input(self, real: Any, source: Source, role: str) -> Input:
        known = self.states.get(id(real))
        if known is not None:
            self.same(known.source, source)
            return known
        self.states[id(real)] = new = Input(source, real, str(source), role)
        self.undo_later(lambda: self.states.__delitem__(id(real)))
        return new

    # Operators

    def tensor_op(
        self, op: str, target: Any, args: Args, kwargs: Kwargs | None = None, mutates: Value | None = None
    ) -> Value:
        from ..models.torch_ops import record

        return record(self, op, target, args, kwargs or {}, mutates)

    def adopt(self, number: Any) -> Any:
        """Make a number of `rules`, and what it is computed from, operators of this region."""
        if not isinstance(number, Op) or self._has(number):
            return number
        key = (id(number.args[0]), number.args[1]) if number.target == "size" else None
        known = self.size_ops.get(key) if key is not None else None
        if known is not None and self._has(known):
            return known
        number.args = tuple(self.adopt(arg) for arg in number.args)
        number.index = len(self.ops)
        self.ops.append(number)
        if key is not None:
            self.size_ops[key] = number
        return number

    def _has(self, op: Op) -> bool:
        return 0 <= op.index < len(self.ops) and self.ops[op.index] is op

    def set_grad_mode(self, mode: Any, known: bool | None = None) -> None:
        """Switch the grad mode from here on; ``mode`` is a bool, or the Op that read an earlier mode."""
        before = self.grad_mode
        self.undo_later(lambda: setattr(self, "grad_mode", before))
        self.add_op("call_function", torch._C._set_grad_enabled, (mode,), keep=True, scalar=True)
        self.grad_mode = mode if isinstance(mode, bool) else known
        self.switches = True

    switches = False

    # What values need of the models, which stand above them

    def identical(self, a: Value, b: Value) -> bool:
        """``a is b``."""
        return operators.identical(self, a, b)

    def equal(self, a: Value, b: Value) -> bool:
        """``bool(a == b)``."""
        return operators.equal_truth(self, a, b)

    def matches(self, a: Value, b: Value) -> bool:
        """``a is b or a == b``, as containers compare their items."""
        return operators.matches(self, a, b)

    def binary(self, operator: Any, a: Value, b: Value) -> Value:
        """``operator(a, b)``."""
        return operators.binary(self, operator, a, b)

    def sorted_items(self, items: list[Value], kwargs: Kwargs) -> list[Value]:
        """As list.sort leaves them."""
        return builtins.sorted_items(self, items, kwargs)

    def tensor_method(self, kind: type, name: str) -> Any:
        """The method ``name`` of tensors of class ``kind``, or None."""
        return torch_ops.tensor_method(kind, name)

    def call_tensor_method(self, tensor: TensorValue, name: str, args: Args, kwargs: Kwargs) -> Value:
        return torch_ops.call_tensor_method(self, tensor, name, args, kwargs)

    def call_leaf_module(self, module: ModuleValue, args: Args, kwargs: Kwargs) -> Value:
        """A call_module node."""
        return torch_ops.module_result(self, module, args, kwargs)

    # What the owner of the outermost frame provides; see capturing.py

    def load_unread(self, frame: SymbolicFrame, index: int) -> Any:
        """The value of a slot of the outermost frame that is read for the first time."""
        raise NoFrame

    def builtin(self, frame: SymbolicFrame, name: str) -> Value | None:
        """A builtin by name."""
        raise NoFrame

    def check_drop(self, old: Any) -> None:
        """A local that held ``old`` is rebound or deleted: break if that may run a finalizer."""

    def loop_back(self, frame: SymbolicFrame, target: int) -> None:
        """A backward jump: break if the loop goes on for long."""

    # Calls

    def call_builtin(self, function: BuiltinValue, args: Args, kwargs: Kwargs) -> Value:
        from ..models.descriptors import call_descriptor
        from ..models.torch_ops import call_torch, is_torch_op

        real = function.value
        model = lookup(MODELS, real)
        if model is not None:
            function.pin(self)
            return run_model(real, model, self, args, kwargs)
        if lookup(LEAF_FUNCTIONS, real) or is_torch_op(real):
            function.pin(self)
            return call_torch(self, real, args, kwargs)
        function.pin(self)
        return call_descriptor(self, function, args, kwargs)

    def call_function(self, function: FunctionConst, args: Args, kwargs: Kwargs) -> Value:
        """Call a real Python function: by its model, as a node, or by interpreting its code."""
        from ..models.torch_ops import call_torch, is_torch_op

        real = function.value
        model = lookup(MODELS, real)
        if model is not None:
            function.pin(self)
            return run_model(real, model, self, args, kwargs)
        if real in EAGER_FUNCTIONS:
            function.pin(self)
            raise GraphBreak(DISABLED, f"{function.describe()} runs natively by framecap.disable")
        if native_part(real) is not None:
            function.pin(self)
            detail = f"{function.describe()} belongs to {native_part(real)}, which runs natively"
            raise GraphBreak(DISABLED, detail, "None needed: the code around the call is captured.")
        if self.is_leaf_function(real) or is_torch_op(real):
            function.pin(self)
            return call_torch(self, real, args, kwargs)
        if function.source is not None:
            self.guard(IsGuard(Get(function.source, "__code__"), real.__code__, where=self.where))
        return self.inline(function, Signature.of_real(self, function), args, kwargs)

    def call_closure(self, function: ClosureValue, args: Args, kwargs: Kwargs) -> Value:
        return self.inline(function, Signature.of_closure(function), args, kwargs)

    def inline(self, function: Value, signature: Signature, args: Args, kwargs: Kwargs) -> Value:
        slots = bind_arguments(self, function, signature, args, kwargs)
        return self.run_code(self, function, signature, slots)

    def call_method_of(self, owner: Value, method: Any, name: str, args: Args) -> Value:
        """Call the Python function ``method``, found as ``name`` on the class of ``owner``."""
        from ..values.lookup import class_lookup

        found, source = class_lookup(self, owner.python_type(), name)
        if not isinstance(found, types.FunctionType):
            owner.refuse(f"{name}()")
        return FunctionConst(found, source).call(self, [owner, *args], {})

    def instantiate(self, cls: ClassValue, args: Args, kwargs: Kwargs) -> Value:
        from ..models.classes import instantiate

        return instantiate(self, cls, args, kwargs)

    def new_op_allowed(self) -> None:
        if self.impure and self.effects:
            raise GraphBreak(IMPURE)


def lookup(table: Any, key: Any) -> Any:
    """``table`` at ``key`` by identity of hashable keys; None for what can't be hashed."""
    try:
        return table.get(key) if isinstance(table, dict) else key in table
    except TypeError:
        return None


def _no_runner(*args: Any) -> Value:
    raise GraphBreak(UNKNOWN_CALL, "no interpreter is attached to this region")


__all__ = ["BuiltinValue", "CellValue", "DictOf", "Index", "InstanceValue", "Namespace", "Op", "Tracer"]
