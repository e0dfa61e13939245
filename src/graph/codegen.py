"""Readable Python for a graph, and the function made of it."""

from __future__ import annotations

import linecache
import operator
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from types import CodeType
from typing import TYPE_CHECKING, Any

from .errors import GraphError
from .names import RESERVED, clean, is_plain
from .node import Node, last_uses
from .render import DOT, INFIX_BY_ID, INPLACE_BY_ID, PREFIX_BY_ID, Renderer

if TYPE_CHECKING:
    from .graph import Graph

_serial = count(1)
_GETITEM, _GETATTR, _SETITEM, _CONTAINS = (
    id(function) for function in (operator.getitem, getattr, operator.setitem, operator.contains)
)
_IS_SIGNS = ("is", "is not")
_SINGLETONS = (None, True, False, ...)


@dataclass(slots=True)
class GeneratedCode:
    """Source of one function, what its names mean, and where its lines come from.

    source: as readers see it. bound_source: as it is compiled, equal to source line by line and column by column, but
    with ``torch_add``, a global bound to the function of the graph, where source has ``torch.add``. globals: for both.
    state_targets: for state="arguments", the targets whose objects are passed after the placeholders, in this order.
    line_to_node: the node that a line (counted from 1) executes.
    """

    source: str
    globals: dict[str, Any]
    state_targets: list[str]
    line_to_node: dict[int, Node] = field(default_factory=dict)
    bound_source: str = ""


class _Writer:
    """Writes the statements of one graph."""

    def __init__(self, graph: Graph, state: str, name: str = "forward") -> None:
        self.nodes = list(_executed(graph))
        self.in_arguments = state == "arguments"
        self.renderer = Renderer()
        self.state_names: dict[str, str] = {}
        self.parameters: list[str] = [] if self.in_arguments else ["self"]
        self.state_targets: list[str] = []
        self.lines: list[str] = []
        self.line_to_node: dict[int, Node] = {}
        self.name = clean(name)
        self._name_locals()
        if self.name not in self.renderer.names:
            self.renderer.names.claim(self.name)
        self._name_parameters()

    def _name_locals(self) -> None:
        """Node names as they are, unless one can't be a local variable here (names that came from elsewhere)."""
        names, local = self.renderer.names, self.renderer.local
        later = []
        for node in self.nodes:
            name = node.name
            if name in names or not is_plain(name):
                later.append(node)
            else:
                names.claim(name)
                local[node] = name
        for node in later:
            local[node] = names.take(node.name)

    def _name_parameters(self) -> None:
        names, local, shadowed = self.renderer.names, self.renderer.local, self.renderer.shadowed
        defaults = False
        for node in self.nodes:
            if node.op != "placeholder":
                continue
            name = local[node]
            if self.in_arguments:
                self.parameters.append(name)
                continue
            stars = "*" * (len(node.target) - len(node.target.lstrip("*")))
            parameter = node.target[len(stars) :]
            if parameter != name:
                # A parameter is part of the interface: it keeps its name, be it a builtin's; the variable has its own.
                if parameter in RESERVED and parameter != "self" and is_plain(parameter) and parameter not in shadowed:
                    shadowed.add(parameter)
                else:
                    parameter = names.take(parameter)
                self.lines.append(f"    {name} = {parameter}; del {parameter}")
            default = self._default(node)
            if defaults and not default and not stars:
                raise GraphError(f"placeholder {node.name!r} has no default, but one before it has")
            defaults = defaults or bool(default)
            self.parameters.append(f"{stars}{parameter}{default}")
        if self.in_arguments:
            for node in self.nodes:
                if node.op in ("get_attr", "call_module") and node.target not in self.state_names:
                    name = local[node] if node.op == "get_attr" else names.take(node.target.replace(".", "_"))
                    self.state_names[node.target] = name
                    self.parameters.append(name)
                    self.state_targets.append(node.target)
                if node.op == "get_attr":
                    local[node] = self.state_names[node.target]

    def _default(self, node: Node) -> str:
        if not node.args:
            return ""
        value = node.args[0]
        if isinstance(value, (list, dict, set)):
            return f"={self.renderer.object(value, f'{node.name}_default')}"
        return f"={self.renderer.value(value)}"

    # Expressions

    def state_path(self, target: str) -> str:
        """The expression for the state at a dotted path."""
        if self.in_arguments:
            return self.state_names[target]
        text = "self"
        for part in target.split("."):
            if is_plain(part):
                text = f"{text}.{part}"
            else:
                text = f"{self.renderer.function(getattr)}({text}, {part!r})"
        return text

    def expression(self, node: Node) -> str:
        """What a node computes."""
        op, args, kwargs, renderer = node.op, node._args, node._kwargs, self.renderer
        if op == "call_function":
            if not kwargs:
                text = self.operation(id(node.target), args)
                if text is not None:
                    return text
            return f"{renderer.function(node.target)}({renderer.arguments(args, kwargs)})"
        if op == "call_method":
            if not args:
                raise GraphError(f"node {node.name!r} calls a method of nothing; expected the object as argument")
            rest = renderer.arguments(args[1:], kwargs)
            if is_plain(node.target):
                return f"{renderer.owner(args[0])}.{node.target}({rest})"
            return f"{renderer.function(getattr)}({renderer.value(args[0])}, {node.target!r})({rest})"
        if op == "call_module":
            return f"{self.state_path(node.target)}({renderer.arguments(args, kwargs)})"
        return self.state_path(node.target)

    def operation(self, function: int, args: tuple[Any, ...]) -> str | None:
        """A call as an operator, if it is one (by the function's id) and means exactly the same."""
        renderer = self.renderer
        if len(args) == 2:
            left, right = args
            # Without a node in it, the compiler may warn about an expression, or compute it.
            sign = INFIX_BY_ID.get(function)
            if sign is not None:
                # "is" with a literal gets a warning, and small values may be one object or two.
                if sign in _IS_SIGNS and not all(type(a) is Node or any(a is s for s in _SINGLETONS) for a in args):
                    return None
                if type(left) is Node or type(right) is Node:
                    return f"{renderer.operand(left)} {sign} {renderer.operand(right)}"
            elif type(left) is Node:
                if function == _GETITEM:
                    return f"{renderer.value(left)}[{renderer.index(right)}]"
                if function == _GETATTR and type(right) is str and is_plain(right):
                    return f"{renderer.value(left)}.{right}"
                if function == _CONTAINS:
                    return f"{renderer.operand(right)} in {renderer.value(left)}"
        elif len(args) == 1 and type(args[0]) is Node and function in PREFIX_BY_ID:
            return f"{PREFIX_BY_ID[function]}{renderer.value(args[0])}"
        return None

    # Statements

    def statements(self, node: Node) -> list[str]:
        """The statements that execute a node, one a line."""
        renderer = self.renderer
        name = renderer.local[node]
        if node.op == "call_function" and not node._kwargs:
            args = node._args
            sign = INPLACE_BY_ID.get(id(node.target))
            if sign is not None and len(args) == 2 and node.users:
                return [f"{name} = {renderer.value(args[0])}", f"{name} {sign} {renderer.value(args[1])}"]
            if id(node.target) == _SETITEM and len(args) == 3 and type(args[0]) is Node and not node.users:
                return [f"{renderer.value(args[0])}[{renderer.index(args[1])}] = {renderer.value(args[2])}"]
        text = self.expression(node)
        return [f"{name} = {text}" if node.users else text]

    def write(self) -> None:
        """Fill lines with the whole function."""
        lines, local = self.lines, self.renderer.local
        lines.insert(0, f"def {self.name}({', '.join(self.parameters)}):")
        dead_after = last_uses(self.nodes)
        where: Any = None
        last = self.nodes[-1] if self.nodes else None
        for node in self.nodes:
            if node.op == "placeholder" or (node.op == "get_attr" and self.in_arguments):
                continue
            here = node.meta.get("where")
            if here is not None and here != where:
                where = here
                lines.append(_comment(here))
            if node.op == "output":
                lines.append(f"    return {self.renderer.value(node._args[0] if node._args else None)}")
                self.line_to_node[len(lines)] = node
                continue
            for statement in self.statements(node):
                lines.append(f"    {statement}")
                self.line_to_node[len(lines)] = node
            dead = dead_after.get(node)
            if dead is not None and node is not last:
                if self.in_arguments:
                    dead = [used for used in dead if used.op != "get_attr"]
                if dead:
                    lines[-1] += f"; del {', '.join([local[used] for used in dead])}"
        if len(lines) == 1 or last is None or last.op != "output":
            lines.append("    return None")


def _executed(graph: Graph) -> Iterator[Node]:
    """The nodes that are executed: those up to the output."""
    for node in graph.nodes:
        yield node
        if node.op == "output":
            return


def _comment(where: tuple[Any, ...]) -> str:
    filename, line = where[0], where[1]
    text = (where[2] if len(where) > 2 else linecache.getline(filename, line)).strip()
    comment = f"    # {filename.rpartition('/')[2]}:{line}{'  ' if text else ''}{text}"
    # Some characters end a line for str.splitlines, or for Python, or can't be encoded.
    return comment if comment.isprintable() else "".join(c if c.isprintable() else " " for c in comment)


def generate(graph: Graph, *, state: str = "self", name: str = "forward") -> GeneratedCode:
    """Python for ``graph``: a function that does what executing its nodes in order does.

    state: "self" for a method that finds parameters and submodules in ``self``; "arguments" for a function without
    ``self`` that gets them as arguments, after the placeholders (see `GeneratedCode.state_targets`), all of them plain
    positional parameters without defaults. Each value is dropped after its last use. Raises GraphError for what
    can't be written; `check` says more.
    """
    if state not in ("self", "arguments"):
        raise GraphError(f"state is 'self' or 'arguments', not {state!r}")
    writer = _Writer(graph, state, name)
    writer.write()
    text = "\n".join(writer.lines) + "\n"
    return GeneratedCode(
        text.replace(DOT, "."),
        writer.renderer.globals,
        writer.state_targets,
        writer.line_to_node,
        text.replace(DOT, "_"),
    )


def compile_function(generated: GeneratedCode, name: str | None = None) -> Callable[..., Any]:
    """The function of generated code, under another name if one is given.

    Tracebacks, pdb and inspect show its source for as long as its code object lives (in the function, a frame or a
    traceback).
    """
    source, bound = generated.source, generated.bound_source or generated.source
    written = source[len("def ") : source.index("(")]
    if name is not None and name != written:
        start = f"def {clean(name)}("
        source, bound = (start + text[len(written) + len("def (") :] for text in (source, bound))
        written = clean(name)
    filename = f"<framecap graph {next(_serial)}>"
    namespace = dict(generated.globals)
    # Kept out of its own globals, so that it is freed as soon as nobody has it.
    made: dict[str, Any] = {}
    exec(compile(bound, filename, "exec", dont_inherit=True), namespace, made)
    function: Callable[..., Any] = made[written]
    _register_source(function.__code__, filename, source)
    return function


def compile_binder(graph: Graph) -> Callable[..., tuple[Any, ...]]:
    """A function with the parameters of the graph's placeholders that returns their values in order."""
    writer = _Writer(graph, "self")
    names = ", ".join(writer.renderer.local[node] for node in writer.nodes if node.op == "placeholder")
    head = f"def forward({', '.join(writer.parameters[1:])}):"
    text = "\n".join([head, *writer.lines, f"    return ({names}{',' if names else ''})"]).replace(DOT, "_")
    return compile_function(GeneratedCode(text, writer.renderer.globals, []))


def _register_source(code: CodeType, filename: str, source: str) -> None:
    """Let linecache show ``source`` as ``filename`` for as long as ``code`` lives."""
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    weakref.finalize(code, linecache.cache.pop, filename, None).atexit = False
