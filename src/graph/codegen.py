"""Readable Python for a graph, and the function made of it."""

from __future__ import annotations

import enum
import keyword
import linecache
import math
import operator
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch

from .errors import GraphError
from .graph import Graph
from .names import Names, clean
from .node import Node, nodes_in

INFIX: dict[Any, str] = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//",
    operator.mod: "%", operator.pow: "**", operator.matmul: "@", operator.and_: "&", operator.or_: "|", operator.xor: "^",
    operator.lshift: "<<", operator.rshift: ">>", operator.lt: "<", operator.le: "<=", operator.eq: "==",
    operator.ne: "!=", operator.gt: ">", operator.ge: ">=",
}  # fmt: skip
PREFIX: dict[Any, str] = {operator.neg: "-", operator.pos: "+", operator.invert: "~"}
INPLACE: dict[Any, str] = {
    operator.iadd: "+=", operator.isub: "-=", operator.imul: "*=", operator.itruediv: "/=", operator.ifloordiv: "//=",
    operator.imod: "%=", operator.ipow: "**=", operator.imatmul: "@=", operator.iand: "&=", operator.ior: "|=", operator.ixor: "^=",
}  # fmt: skip
_MODULES = {"torch": torch, "F": torch.nn.functional, "operator": operator, "math": math}
_serial = count(1)


@dataclass(slots=True)
class GeneratedCode:
    """Source of one function, what its names mean, and where its lines come from.

    state_targets: for state="arguments", the targets whose objects are passed after the placeholders, in this order.
    line_to_node: the node that a line (from 1) executes.
    """

    source: str
    globals: dict[str, Any]
    state_targets: list[str]
    line_to_node: dict[int, Node] = field(default_factory=dict)


class _Writer:
    def __init__(self, graph: Graph, state: str) -> None:
        self.graph = graph
        self.state = state
        self.names = Names(frozenset())
        self.names.taken.update(node.name for node in graph.nodes)
        self.names.taken.update(("self", *_MODULES, *keyword.kwlist))
        self.globals: dict[str, Any] = {}
        self.by_object: dict[int, str] = {}
        self.state_names: dict[str, str] = {}

    # Objects

    def object(self, value: Any, hint: str) -> str:
        """A global name for an object that has no literal."""
        known = self.by_object.get(id(value))
        if known is None:
            known = self.by_object[id(value)] = self.names.take(clean(hint))
            self.globals[known] = value
        return known

    def function(self, function: Any) -> str:
        """How a function is called in the code: ``torch.add`` where that is the function, else a global name."""
        name = getattr(function, "__name__", None)
        if name is not None and name.isidentifier():
            for prefix, module in _MODULES.items():
                if getattr(module, name, None) is function:
                    self.globals[prefix] = module
                    return f"{prefix}.{name}"
            if getattr(__builtins__ if not isinstance(__builtins__, dict) else object, name, None) is function:
                return str(name)
        return self.object(function, name or type(function).__name__)

    def value(self, value: Any) -> str:
        """An argument as an expression."""
        if isinstance(value, Node):
            return value.name if value.op != "get_attr" or self.state == "self" else self.state_names[value.target]
        kind = type(value)
        if value is None or kind in (bool, int, str, bytes) or value is ...:
            return "..." if value is ... else repr(value)
        if kind is float:
            return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
        if kind is tuple:
            return f"({', '.join(map(self.value, value))}{',' if len(value) == 1 else ''})"
        if kind is list:
            return f"[{', '.join(map(self.value, value))}]"
        if kind is dict:
            return f"{{{', '.join(f'{self.value(k)}: {self.value(v)}' for k, v in value.items())}}}"
        if kind is slice:
            return f"slice({', '.join(map(self.value, (value.start, value.stop, value.step)))})"
        if kind is torch.dtype:
            self.globals["torch"] = torch
            return str(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return f"{self.object(kind, kind.__name__)}({', '.join(map(self.value, value))})"
        if isinstance(value, enum.Enum):
            return self.object(value, f"{kind.__name__}_{value.name}")
        return self.object(
            value, kind.__name__.lower() if not callable(value) else getattr(value, "__name__", kind.__name__)
        )

    def state_of(self, target: str) -> str:
        """The expression for the state at a dotted path."""
        if self.state == "arguments":
            return self.state_names[target]
        parts = target.split(".")
        text = "self"
        for part in parts:
            text = (
                f"{text}.{part}"
                if part.isidentifier() and not keyword.iskeyword(part)
                else f"getattr({text}, {part!r})"
            )
        return text

    # Statements

    def call(self, node: Node) -> str:
        """The expression that a node computes."""
        if node.op == "get_attr":
            return self.state_of(node.target)
        args, kwargs = node.args, node.kwargs
        if node.op == "call_function":
            target = node.target
            if not kwargs and len(args) == 2:
                if target in INFIX:
                    return f"{self.operand(args[0])} {INFIX[target]} {self.operand(args[1])}"
                if target is operator.getitem:
                    return f"{self.operand(args[0])}[{self.index(args[1])}]"
                if (
                    target is getattr
                    and isinstance(args[1], str)
                    and args[1].isidentifier()
                    and isinstance(args[0], Node)
                ):
                    return f"{self.value(args[0])}.{args[1]}"
            if not kwargs and len(args) == 1 and target in PREFIX:
                return f"{PREFIX[target]}{self.operand(args[0])}"
            return f"{self.function(target)}({self.arguments(args, kwargs)})"
        if node.op == "call_method":
            owner, *rest = args
            return f"{self.operand(owner)}.{node.target}({self.arguments(tuple(rest), kwargs)})"
        return f"{self.state_of(node.target)}({self.arguments(args, kwargs)})"

    def operand(self, value: Any) -> str:
        text = self.value(value)
        return f"({text})" if isinstance(value, (int, float, complex)) and not isinstance(value, bool) else text

    def index(self, value: Any) -> str:
        if type(value) is slice:
            parts = ["" if part is None else self.value(part) for part in (value.start, value.stop, value.step)]
            return ":".join(parts if value.step is not None else parts[:2])
        if type(value) is tuple and value:
            return ", ".join(map(self.index, value)) + ("," if len(value) == 1 else "")
        return self.value(value)

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        parts = [self.value(a) for a in args]
        odd = {k: v for k, v in kwargs.items() if not k.isidentifier() or keyword.iskeyword(k)}
        parts += [f"{k}={self.value(v)}" for k, v in kwargs.items() if k not in odd]
        if odd:
            parts.append(f"**{self.value(odd)}")
        return ", ".join(parts)


def generate(graph: Graph, *, state: str = "self", name: str = "forward") -> GeneratedCode:
    """Python for ``graph``.

    state: "self" for a method that finds parameters and submodules in ``self``; "arguments" for a function that gets
    them as arguments, after the placeholders (see `GeneratedCode.state_targets`).
    """
    if state not in ("self", "arguments"):
        raise GraphError(f"state is 'self' or 'arguments', not {state!r}")
    writer = _Writer(graph, state)
    nodes = list(graph.nodes)
    targets: list[str] = []
    if state == "arguments":
        for node in nodes:
            if node.op in ("get_attr", "call_module") and node.target not in writer.state_names:
                writer.state_names[node.target] = writer.names.take(clean(node.target.replace(".", "_")))
                targets.append(node.target)
    parameters = ["self"] if state == "self" else []
    for node in nodes:
        if node.op == "placeholder":
            parameters.append(f"{node.name}={writer.value(node.args[0])}" if node.args else node.name)
    parameters += [writer.state_names[t] for t in targets]
    lines = [f"def {name}({', '.join(parameters)}):"]
    line_to_node: dict[int, Node] = {}
    last_use = _last_uses(nodes)
    where: Any = None
    for node in nodes:
        if node.op == "placeholder" or (node.op == "get_attr" and state == "arguments"):
            continue
        here = node.meta.get("where")
        if here is not None and here != where:
            where = here
            text = linecache.getline(here[0], here[1]).strip()
            lines.append(f"    # {here[0].rpartition('/')[2]}:{here[1]}{'  ' + text if text else ''}")
        if node.op == "output":
            lines.append(f"    return {writer.value(node.args[0])}")
        elif (
            node.op == "call_function"
            and node.target in INPLACE
            and len(node.args) == 2
            and isinstance(node.args[0], Node)
        ):
            lines.append(f"    {node.name} = {writer.value(node.args[0])}")
            lines.append(f"    {node.name} {INPLACE[node.target]} {writer.value(node.args[1])}")
        elif node.op == "call_function" and node.target is operator.setitem and len(node.args) == 3 and not node.users:
            owner, key, item = node.args
            lines.append(f"    {writer.value(owner)}[{writer.index(key)}] = {writer.value(item)}")
        else:
            target = node.name if node.users else "_"
            lines.append(f"    {target} = {writer.call(node)}" if node.users else f"    {writer.call(node)}")
        line_to_node[len(lines)] = node
        dead = last_use.get(node, ())
        if dead and node.op != "output":
            lines[-1] += f"; {' = '.join(d.name for d in dead)} = None"
    return GeneratedCode("\n".join(lines) + "\n", writer.globals, targets, line_to_node)


def _last_uses(nodes: list[Node]) -> dict[Node, list[Node]]:
    """For each node, those whose values nobody needs after it. Inputs and state belong to the caller."""
    seen: set[Node] = set()
    found: dict[Node, list[Node]] = {}
    for node in reversed(nodes):
        for used in nodes_in((node.args, node.kwargs)):
            if used not in seen:
                seen.add(used)
                if used.op not in ("get_attr",):
                    found.setdefault(node, []).append(used)
    return found


def compile_function(generated: GeneratedCode, name: str = "forward") -> Callable[..., Any]:
    """The function of generated code. Tracebacks and pdb show its lines as long as it lives."""
    filename = f"<framecap graph {next(_serial)}>"
    namespace = dict(generated.globals)
    exec(compile(generated.source, filename, "exec"), namespace)
    function: Callable[..., Any] = namespace[generated.source[4 : generated.source.index("(")]]
    register_source(function, filename, generated.source)
    return function


def register_source(owner: Any, filename: str, source: str) -> None:
    """Let linecache show ``source`` as ``filename`` for as long as ``owner`` lives."""
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    weakref.finalize(owner, linecache.cache.pop, filename, None).atexit = False
