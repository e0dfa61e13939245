"""From a finished Region to what runs: the graph, the backend's callable, the guard program and the epilogue."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from framecap.graph import Graph, GraphModule, Node, compile_function, generate
from framecap.guards import Call, EqualsGuard, Get, IsGuard, Source

from ..errors import BackendError
from ..tracing.metadata import map_leaves
from ..tracing.region import Input, Op, Region
from .epilogue import Emitter
from .lowering import lower


@dataclass(slots=True)
class BuiltGraph:
    """A region's graph: its nodes' inputs in order, the state it uses, and which operators became nodes."""

    graph: Graph
    placeholders: list[Input]
    state: list[tuple[str, Input]]
    ops: list[Op]
    outputs: list[Op]
    input_nodes: dict[Source, Node]


def live_ops(region: Region, outputs: list[Op]) -> list[Op]:
    """All operators on tensors, in order, and of those on numbers what is needed.

    An operator whose result nobody uses may still raise, or be seen by a dispatch mode, so it stays.
    """
    needed: set[int] = set()
    stack: list[Op] = [*outputs, *(op for op in region.ops if op.keep or not op.scalar)]
    while stack:
        op = stack.pop()
        if id(op) in needed:
            continue
        needed.add(id(op))

        def visit(leaf: Any) -> Any:
            if isinstance(leaf, Op):
                stack.append(leaf)
            return leaf

        map_leaves((op.args, op.kwargs), visit)
    return [op for op in region.ops if id(op) in needed]


def build_graph(
    region: Region,
    outputs: list[Op],
    *,
    lowered: bool = False,
    name_state: Callable[[Input, set[str]], str] | None = None,
) -> BuiltGraph:
    """The IR of a region, with only what is needed.

    lowered: for running, with leaf modules called directly. name_state: the target of a parameter, buffer or module, given
    those that are taken.
    """
    ops = live_ops(region, outputs)
    direct = {id(op): found for op in ops if lowered and op.op == "call_module" and (found := lower(region, op)) is not None}
    inputs: dict[int, Input] = {}

    def collect(leaf: Any) -> Any:
        if isinstance(leaf, Input):
            inputs.setdefault(id(leaf), leaf)
        return leaf

    for op in ops:
        if id(op) in direct:
            map_leaves(direct[id(op)][1:], collect)
            continue
        map_leaves((op.args, op.kwargs), collect)
        if op.op == "call_module":
            collect(op.target)
    graph = Graph()
    nodes: dict[int, Node] = {}
    by_source: dict[Source, Node] = {}
    placeholders: list[Input] = []
    for item in inputs.values():
        if item.role != "placeholder":
            continue
        node = by_source.get(item.source)
        if node is None:
            node = by_source[item.source] = graph.placeholder(item.hint)
            placeholders.append(item)
        nodes[id(item)] = node
    state: list[tuple[str, Input]] = []
    targets: dict[int, str] = {}
    taken: set[str] = set()
    known: dict[Source, str] = {}
    for item in inputs.values():
        if item.role == "placeholder":
            continue
        name = known.get(item.source)
        if name is None:
            name = name_state(item, taken) if name_state is not None else state_name(item.source, taken)
        if item.source not in known:
            known[item.source] = name
            state.append((name, item))
        targets[id(item)] = name
        if item.role == "get_attr":
            nodes[id(item)] = graph.get_attr(name)
    modules: dict[Source, str] = {}
    for op in ops:
        kind, target, args, kwargs = op.op, op.target, op.args, op.kwargs
        if id(op) in direct:
            kind, (target, args, kwargs) = "call_function", direct[id(op)]
        elif kind == "call_module":
            target = targets[id(op.target)]
        args, kwargs = map_leaves((args, kwargs), lambda leaf: nodes[id(leaf)])
        node = graph.create_node(kind, target, args, kwargs, name=op.hint or None)
        if op.stack:
            node.meta["where"] = op.stack[0]
            node.meta["stack"] = list(op.stack)
        node.meta["offset"] = op.offset
        if op.module is not None:
            if op.module not in modules:
                modules[op.module] = state_path(op.module)
            node.meta["module"] = modules[op.module]
        nodes[id(op)] = node
    graph.output(tuple(nodes[id(op)] for op in outputs))
    input_nodes = {item.source: nodes[id(item)] for item in inputs.values() if item.role != "module"}
    return BuiltGraph(graph, placeholders, state, ops, outputs, input_nodes)


def state_path(source: Source) -> str:
    """A dotted path for a parameter or module: as the user would write it, without ``self`` and the tables of nn.Module."""
    text = str(source)
    for noise in ("._modules", "._parameters", "._buffers"):
        text = text.replace(noise, "")
    parts: list[str] = []
    word = ""
    for char in text:
        if char.isalnum() or char == "_":
            word += char
        elif word:
            parts.append(word)
            word = ""
    if word:
        parts.append(word)
    if len(parts) > 1 and parts[0] == "self":
        parts = parts[1:]
    return ".".join(parts)


def state_name(source: Source, taken: set[str]) -> str:
    """`state_path`, made an attribute's name and unlike those in ``taken``, to which it is added."""
    name = state_path(source) or "state"
    if name[0].isdigit():
        name = f"_{name}"
    if not _fits(name, taken):
        name = name.replace(".", "_")  # a weight that is used beside the module it lies in, say
    base, count = name, 1
    while not _fits(name, taken):
        name = f"{base}_{count}"
        count += 1
    taken.add(name)
    taken.update(f"{name[:i]}." for i, char in enumerate(name) if char == ".")  # prefixes, marked by a final dot
    return name


def _fits(name: str, taken: set[str]) -> bool:
    """Whether a path is free, isn't inside the path of another object, and holds none."""
    return name not in taken and f"{name}." not in taken and not any(name[:i] in taken for i, c in enumerate(name) if c == ".")


def specialise(region: Region, built: BuiltGraph) -> None:
    """Guards for what a backend fixes: its module's state, and the metadata it declares in ``specializes``."""
    for _, item in built.state:
        region.guard(IsGuard(item.source, item.example))
    for name in getattr(region.config.backend, "specializes", ()):
        for item in built.placeholders:
            if not isinstance(item.example, torch.Tensor):
                region.guard(EqualsGuard(item.source, item.example))
            elif name == "stride":
                region.guard(EqualsGuard(Call(torch.Tensor.stride, item.source), item.example.stride()))
            else:
                region.guard(EqualsGuard(Get(item.source, name), getattr(item.example, name)))


def compile_backend(
    built: BuiltGraph, backend: Callable[..., Any] | None, backend_name: str, emitter: Emitter
) -> tuple[str, Any]:
    """Code that calls the graph (an expression for a tuple of outputs) and the object it calls."""
    if backend is None:
        generated = generate(built.graph, state="arguments")
        function = compile_function(generated, "graph")
        offsets = {line: node.meta.get("offset", -1) for line, node in generated.line_to_node.items()}
        function.__dict__["line_to_offset"] = offsets  # for errors in the middle of a region; see points.on_error
        by_name = dict(built.state)
        arguments = [emitter.input(item.source) for item in built.placeholders]
        arguments += [emitter.input(by_name[target].source) for target in generated.state_targets]
        name = emitter.object(function, "graph")
        return f"{name}({', '.join(arguments)})", function
    root = {target: item.example for target, item in built.state}
    module = GraphModule(root, built.graph)
    examples = [item.example for item in built.placeholders]
    try:
        compiled = backend(module, examples)
    except Exception as error:
        raise BackendError(f"backend {backend_name!r} raised {type(error).__name__}: {error}") from error
    if not callable(compiled):
        raise BackendError(
            f"backend {backend_name!r} returned an object of type {type(compiled).__name__}; it must return a callable that "
            "takes the graph's inputs and returns its outputs"
        )
    name = emitter.object(compiled, "compiled")
    arguments = [emitter.input(item.source) for item in built.placeholders]
    return f"{name}({', '.join(arguments)})", compiled


_serial = 0


def compile_epilogue(
    emitter: Emitter,
    call: str,
    outputs: list[str],
    body: list[str],
    result: str,
    *,
    switches: bool,
    random: bool,
    has_graph: bool,
) -> Any:
    """The function `run` of a variant. switches: restore the grad mode on an error; random: and the generator's state."""
    global _serial
    _serial += 1
    lines = [f"def region({', '.join(emitter.inputs.values())}):"]
    if has_graph:
        unpack = f"{', '.join(outputs)}{',' if outputs else ''}" if outputs else "_"
        statement = f"{unpack} = {call}"
        before, restore = [], []
        if switches:
            before.append(f"grad = {emitter.object(torch.is_grad_enabled, 'is_grad_enabled')}()")
            restore.append(f"{emitter.object(torch._C._set_grad_enabled, 'set_grad_enabled')}(grad)")
        if random:
            before.append(f"rng = {emitter.object(torch.get_rng_state, 'get_rng_state')}()")
            restore.append(f"{emitter.object(torch.set_rng_state, 'set_rng_state')}(rng)")
        lines += [f"    {line}" for line in before]
        if restore:
            lines += ["    try:", f"        {statement}", "    except BaseException:"]
            lines += [f"        {line}" for line in restore] + ["        raise"]
        else:
            lines.append(f"    {statement}")
    lines += [f"    {line}" for line in body]
    lines.append(f"    return {result}")
    source = "\n".join(lines) + "\n"
    filename = f"<framecap region {_serial}>"
    namespace: dict[str, Any] = {"__builtins__": __builtins__, "__name__": "framecap.region", **emitter.objects}
    exec(compile(source, filename, "exec"), namespace)
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    function = namespace.pop("region")
    import weakref

    weakref.finalize(function, linecache.cache.pop, filename, None)
    return function
