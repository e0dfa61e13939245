"""From a finished interpretation of a whole call to a GraphModule: inputs by the signature, state by its own paths."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import nn

from framecap.graph import GraphModule, Node
from framecap.graph.state import why_not_found
from framecap.guards import Attr, DictOf, Get, Guard, Index, Item, Slot, Source

from .errors import CaptureError
from .symbolic.compile import BuiltGraph, build_graph, state_name, state_path
from .tracing.examples import NoExample
from .tracing.metadata import map_leaves
from .tracing.region import Effect, Input, Op
from .values.base import Value
from .values.constant import Const
from .values.deferred import Deferred
from .values.instance import DELETED, InstanceValue
from .values.mapping import DictValue
from .values.number import NumberValue
from .values.sequence import ListValue, TupleValue
from .values.tensor import TensorValue

if TYPE_CHECKING:
    from .whole import WholeTracer


def build_module(tx: WholeTracer, result: Value, name: str) -> GraphModule:
    """The GraphModule of a call that returned ``result``, as a class called ``name``."""
    if tx.effects:
        raise CaptureError(f"{name} can't be captured: it {told(tx.effects[0])}, which a graph can't express; return the new value")
    output = structure(tx, result)
    for item in found_inputs(tx, output):
        if item.role == "placeholder" and not tx.is_input(item.source):
            item.role = "get_attr"
    slot = tx.call.owner
    names = StateNames(slot, tx.real_slots[slot.index] if slot is not None else None)
    built = build_graph(tx, [ref for ref in leaves(output) if isinstance(ref, Op)], name_state=names)
    connect_inputs(tx, tx.call.inputs, built)
    root = names.root(built)
    outputs = dict(zip(map(id, built.outputs), built.graph.output_node.args[0], strict=True))

    def node(ref: Any) -> Any:
        if isinstance(ref, Op):
            return outputs[id(ref)]
        if ref.source not in built.input_nodes:  # returned as it came, used by no operator
            with built.graph.inserting_before(built.graph.output_node):
                if ref.role == "get_attr":
                    built.input_nodes[ref.source] = built.graph.get_attr(names.add(root, ref))
                else:
                    access(built, ref.source)
        return built.input_nodes[ref.source]

    with built.graph.inserting_before(built.graph.output_node):
        built.graph.output_node.args = (in_nodes(built, output, node),)
    module = GraphModule(root, built.graph, name)
    module.meta["assumptions"] = assumptions(tx)
    return module


# Results


@dataclasses.dataclass(frozen=True, slots=True)
class Made:
    """An object of a class that the graph has to make from its parts, by calling ``cls``."""

    cls: type
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def structure(tx: WholeTracer, value: Value) -> Any:
    """A result in terms of Ops and Inputs, in tuples, lists, dicts, and Made for data classes and named tuples."""
    if isinstance(value, (TensorValue, NumberValue, Deferred)):
        return value.ref
    if isinstance(value, TupleValue):
        items = tuple(structure(tx, item) for item in value.unpack(tx))
        if value.cls in (tuple, torch.Size):
            return items
        if hasattr(value.cls, "_fields") and value.cls.__new__ is not tuple.__new__:
            return Made(value.cls, items, {})
        return Made(value.cls, (items,), {}) if value.cls.__module__ == "torch.return_types" else refuse(value)
    if isinstance(value, ListValue) and value.cls is list:
        return [structure(tx, item) for item in value.unpack(tx)]
    if isinstance(value, DictValue) and value.cls is dict:
        return {key: structure(tx, item) for key, item in items_of(tx, value)}
    if isinstance(value, DictValue):
        refuse(value)
    if isinstance(value, Const):
        return value.value
    if isinstance(value, InstanceValue) and value.source is None and dataclasses.is_dataclass(value.cls):
        if isinstance(value.storage, DictValue):  # a ModelOutput of transformers: fields that are None aren't items
            return Made(value.cls, (), {key: structure(tx, item) for key, item in items_of(tx, value.storage)})
        fields = dataclasses.fields(value.cls)
        plain = all(f.init for f in fields) and not hasattr(value.cls, "__post_init__")
        if plain and [f.name for f in fields] == list(value.attrs) and DELETED not in value.attrs.values():
            return Made(value.cls, (), {key: structure(tx, item) for key, item in value.attrs.items()})
    refuse(value)


def items_of(tx: WholeTracer, table: DictValue) -> Iterator[tuple[Any, Value]]:
    for key, item in table.entries.values():
        yield (key.value if isinstance(key, Const) else refuse(key)), item


def refuse(value: Value) -> NoReturn:
    raise CaptureError(f"the result holds {value.describe()}, which a graph can't return")


def leaves(output: Any) -> Iterator[Any]:
    """The Ops and Inputs of a result."""
    if isinstance(output, (Op, Input)):
        yield output
    elif isinstance(output, Made):
        yield from leaves((output.args, output.kwargs))
    elif isinstance(output, (dict, tuple, list)):
        for item in output.values() if isinstance(output, dict) else output:
            yield from leaves(item)


def in_nodes(built: BuiltGraph, output: Any, node: Any) -> Any:
    """A result with nodes for its Ops and Inputs; adds the calls that make objects, at the insertion point."""
    if isinstance(output, (Op, Input)):
        return node(output)
    if isinstance(output, Made):
        args, kwargs = in_nodes(built, output.args, node), in_nodes(built, output.kwargs, node)
        return built.graph.call_function(output.cls, args, kwargs)
    if isinstance(output, dict):
        return {key: in_nodes(built, item, node) for key, item in output.items()}
    if type(output) in (tuple, list):
        return type(output)(in_nodes(built, item, node) for item in output)
    return output


# Inputs


def found_inputs(tx: WholeTracer, output: Any) -> Iterator[Input]:
    """Everything that operators and the result take from outside."""
    found: list[Input] = [ref for ref in leaves(output) if isinstance(ref, Input)]

    def visit(leaf: Any) -> Any:
        if isinstance(leaf, Input):
            found.append(leaf)
        return leaf

    for op in tx.ops:
        map_leaves((op.args, op.kwargs), visit)
    yield from found


def connect_inputs(tx: WholeTracer, inputs: Mapping[str, Slot], built: BuiltGraph) -> None:
    """Make the graph's placeholders the parameters of the signature; what lies inside an argument is taken out of it."""
    graph = built.graph
    used = {root_of(item.source) for item in built.placeholders}
    signature: list[tuple[str, Slot]] = []
    for name, slot in inputs.items():
        example = tx.real_slots[slot.index]
        number = type(example) in (int, float) and slot not in tx.fixed
        if slot in used or number or isinstance(example, (torch.Tensor, NoExample)) or holds_tensor(example):
            signature.append((name, slot))
    old = {item.source: built.input_nodes[item.source] for item in built.placeholders}
    body = next(node for node in graph.nodes if node.op != "placeholder")
    with graph.inserting_before(body):
        for target, slot in signature:
            known = old.pop(slot, None)
            if known is None:
                built.input_nodes[slot] = graph.placeholder(target)
            else:
                body.prepend(known)
        for source, node in old.items():
            built.input_nodes.pop(source)
            graph.rename(node, "replaced")
        for source, node in old.items():
            node.replace_all_uses_with(access(built, source))
            graph.erase_node(node)


def access(built: BuiltGraph, source: Source) -> Node:
    """The node of an object that lies at ``source``, with the nodes that lead there from the argument."""
    known = built.input_nodes.get(source)
    if known is not None:
        return known

    def reach(function: Any, args: tuple[Any, ...]) -> Node:
        return built.graph.create_node("call_function", function, args, {}, name=str(source))

    base = source.base
    if isinstance(source, (Index, Item)) and base is not None and not isinstance(base, DictOf):
        key = source.index if isinstance(source, Index) else source.key
        made = reach(operator.getitem, (access(built, base), key))
    elif isinstance(source, Item) and isinstance(base, DictOf):
        made = reach(getattr, (access(built, base.base), source.key))
    elif isinstance(source, (Attr, Get)) and base is not None:
        made = reach(getattr, (access(built, base), source.name))
    else:
        raise CaptureError(f"{source} can't be reached from the arguments by items and attributes")
    built.input_nodes[source] = made
    return made


def root_of(source: Source) -> Source:
    while source.base is not None:
        source = source.base
    return source


def holds_tensor(example: Any) -> bool:
    if isinstance(example, (tuple, list)):
        return any(isinstance(item, torch.Tensor) or holds_tensor(item) for item in example)
    return isinstance(example, dict) and holds_tensor(list(example.values()))


# State


class StateNames:
    """Targets of what a graph takes from elsewhere than its arguments. What lies in ``owner`` keeps its path there."""

    def __init__(self, slot: Slot | None, owner: nn.Module | None) -> None:
        self.slot = slot
        self.owner = owner
        self.taken: set[str] = set(dir(owner)) if owner is not None else set()
        self.foreign: list[str] = []

    def __call__(self, item: Input, taken: set[str]) -> str:
        root = root_of(item.source)
        if self.owner is not None and root == self.slot:
            path = state_path(item.source).removeprefix(f"{root}.")
            if why_not_found(self.owner, path)[1] is item.example:
                return path
        self.taken |= taken
        name = state_name(item.source, self.taken)
        self.foreign.append(name)
        return name

    def root(self, built: BuiltGraph) -> nn.Module | dict[str, Any]:
        """Where GraphModule finds the state: the owner itself, or with what comes from elsewhere set beside its own."""
        objects = {target: item.example for target, item in built.state}
        if self.owner is None:
            return objects
        if not self.foreign:
            return self.owner
        shadow = nn.Module()
        shadow.__dict__.update(
            {key: dict(part) if type(part) is dict else part for key, part in self.owner.__dict__.items()},
            _non_persistent_buffers_set=set(self.owner._non_persistent_buffers_set),
        )
        for target in self.foreign:
            put(shadow, target, objects[target])
        return shadow

    def add(self, root: nn.Module | dict[str, Any], item: Input) -> str:
        """The target of one more object."""
        target = self(item, set())
        if isinstance(root, dict):
            root[target] = item.example
        elif target in self.foreign:
            put(root, target, item.example)
        return target


def put(root: nn.Module, target: str, value: Any) -> None:
    *path, last = target.split(".")
    for part in path:
        if part not in root._modules:
            root.add_module(part, nn.Module())
        root = root._modules[part]  # type: ignore[assignment]
    if isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter):
        root.register_buffer(last, value)
    else:
        setattr(root, last, value)


# What a user should know


def told(effect: Effect) -> str:
    """A mutation as a clause: what it does, and where."""
    kind, operands = effect.kind, effect.operands
    owner = operands[0].describe() if isinstance(operands[0], Value) else ""
    what = {
        "setattr": lambda: f"sets the attribute {operands[1]!r} of {owner}",
        "delattr": lambda: f"deletes the attribute {operands[1]!r} of {owner}",
        "setitem": lambda: f"assigns an item of {owner}",
        "delitem": lambda: f"deletes an item of {owner}",
        "method": lambda: f"calls {operands[1]}() of {owner}",
        "global": lambda: f"rebinds the global variable {operands[1]!r}",
        "cell": lambda: "rebinds a variable of an enclosing function",
    }.get(kind, lambda: f"changes {owner}")()
    return what if effect.where is None else f"{what} at {effect.where[0]}:{effect.where[1]}"


def assumptions(tx: WholeTracer) -> tuple[str, ...]:
    """What the program has read of its arguments, as conditions: the graph stands for the program where they hold."""

    def of_inputs(guard: Guard) -> bool:
        return all(tx.is_input(source) for source in guard.sources())

    found = (guard.claim() for guard in tx.guards if of_inputs(guard))
    return tuple(dict.fromkeys(claim for claim in found if claim is not None))

