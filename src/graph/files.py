"""Graph modules in files, without pickle and without running anything of what is loaded.

A file is a zip archive of ``graph.json``, the nodes and what they use, and ``state.safetensors``, the tensors. Functions
are named as `targets.py` allows. A module of torch.nn that is one node is written as its class and settings; a graph module
that is one, such as a part of a split, as a graph.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from typing import IO, Any

import torch
from torch import nn

from .check import check
from .errors import GraphError
from .graph import Graph
from .graph_module import GraphModule
from .node import Node
from .state import find, in_order
from .targets import constant_name, find_constant, find_target, is_allowed_method, path_of

VERSION = 1
_OF_ALL_MODULES = frozenset(vars(nn.Module()))
_DAMAGE = (zipfile.BadZipFile, KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError)
"""What reading a file that isn't what it should be raises, beside safetensors' own errors."""
_DERIVED = frozenset(["_flat_weights", "_flat_weight_refs", "_packed"])
"""Attributes of recurrent and quantized modules that are made of others."""


def save(module: GraphModule, file: str | os.PathLike[str] | IO[bytes]) -> None:
    """Write a graph module with its parameters and buffers to a file, given by its path or open for binary writing.

    Raises GraphError for what can't be written: functions that aren't operators of torch and have no name by
    `register_target`, arguments of the program's own types, modules with hooks.
    """
    from safetensors.torch import save as to_bytes

    writer = _Writer(module)
    document = writer.document()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("graph.json", json.dumps(document, indent=1, allow_nan=False))
        archive.writestr("state.safetensors", to_bytes(writer.tensors))


def load(file: str | os.PathLike[str] | IO[bytes]) -> GraphModule:
    """Read a graph module that `save` wrote, from a path or a file open for binary reading.

    Raises GraphError if the file isn't one, or names what it may not (see `register_target`).
    """
    from safetensors import SafetensorError
    from safetensors.torch import load as from_bytes

    shown = repr(os.fspath(file)) if isinstance(file, (str, os.PathLike)) else "the file"
    try:
        with zipfile.ZipFile(file) as archive:
            document = json.loads(archive.read("graph.json"))
            tensors = from_bytes(archive.read("state.safetensors"))
        if document.get("framecap graph") != VERSION:
            raise GraphError(f"it has version {document.get('framecap graph')!r}, and this framecap reads {VERSION}")
        return _Reader(document, tensors).module()
    except GraphError as error:
        raise GraphError(f"{shown} can't be loaded: {error}") from None
    except (*_DAMAGE, SafetensorError) as error:
        raise GraphError(f"{shown} is no graph module that framecap wrote: {error!r}") from None


class _Writer:
    def __init__(self, module: GraphModule) -> None:
        self.module = module
        self.tensors: dict[str, torch.Tensor] = {}
        self.keys: dict[int, str] = {}
        self.index = {node: i for i, node in enumerate(module.graph.nodes)}

    def document(self) -> dict[str, Any]:
        nodes = [self.node(node) for node in self.module.graph.nodes]
        targets = in_order(self.module, (n.target for n in self.module.graph.nodes if n.op in ("get_attr", "call_module")))
        state = {target: self.state(target, find(self.module, target)) for target in targets}
        return {
            "framecap graph": VERSION, "class": self.module._class_name, "training": self.module.training, "nodes": nodes,
            "state": state, "meta": self.notes(self.module.meta),
        }  # fmt: skip

    def node(self, node: Node) -> dict[str, Any]:
        try:
            return {
                "op": node.op,
                "name": node.name,
                "target": node.target if isinstance(node.target, str) else path_of(node.target),
                "args": [self.value(value) for value in node.args],
                "kwargs": {key: self.value(value) for key, value in node.kwargs.items()},
                "meta": self.notes(node.meta),
            }
        except GraphError as error:
            raise GraphError(f"node {node.format()} can't be saved: {error}") from None

    def notes(self, meta: dict[str, Any]) -> dict[str, Any]:
        """What of the notes is plain data."""
        found = {}
        for key, value in meta.items():
            if isinstance(key, str) and _is_plain(value):
                found[key] = self.value(value)
        return found

    def tensor(self, tensor: torch.Tensor) -> dict[str, Any]:
        if type(tensor) not in (torch.Tensor, nn.Parameter) or tensor.layout is not torch.strided or tensor.is_quantized:
            raise GraphError(f"a tensor of type {type(tensor).__name__} and layout {tensor.layout} can't be written")
        key = self.keys.get(id(tensor))
        if key is None:
            key = self.keys[id(tensor)] = f"tensor_{len(self.keys)}"
            self.tensors[key] = tensor.detach().cpu().contiguous().clone()
        kind = "parameter" if isinstance(tensor, nn.Parameter) else "tensor"
        written = {kind: key, "requires_grad": tensor.requires_grad}
        if tensor.dim() == 4 and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last):
            written["channels_last"] = True
        return written

    def state(self, target: str, value: Any) -> dict[str, Any]:
        if isinstance(value, nn.Module):
            try:
                return {"module": self.layer(value)}
            except GraphError as error:
                raise GraphError(f"the module {target!r} can't be saved: {error}") from None
        owner = find(self.module, target.rpartition(".")[0]) if "." in target else self.module
        name = target.rpartition(".")[2]
        buffer = isinstance(owner, nn.Module) and name in owner._buffers
        written = {"value": self.value(value)}
        if buffer:
            written["persistent"] = name not in owner._non_persistent_buffers_set
        return written

    def layer(self, layer: nn.Module) -> dict[str, Any]:
        hooks = [k for k, v in vars(layer).items() if k.endswith("_hooks") and v]
        if hooks or "forward" in vars(layer):
            raise GraphError(f"it has {hooks[0] if hooks else 'a forward of its own'}")
        if isinstance(layer, GraphModule):
            inner = _Writer(layer)
            inner.tensors, inner.keys = self.tensors, self.keys
            return {"graph": inner.document()}
        own = {k: v for k, v in vars(layer).items() if k not in _OF_ALL_MODULES and k not in _DERIVED}
        return {
            "class": path_of(type(layer)),
            "training": layer.training,
            "settings": {key: self.value(value) for key, value in own.items()},
            "parameters": {k: None if v is None else self.tensor(v) for k, v in layer._parameters.items()},
            "buffers": {k: None if v is None else self.tensor(v) for k, v in layer._buffers.items()},
            "passing": sorted(layer._non_persistent_buffers_set),
            "modules": {k: None if v is None else self.layer(v) for k, v in layer._modules.items()},
        }

    def value(self, value: Any) -> Any:
        """An argument in JSON: what JSON has as it is, all else as an object with one key that tells its kind."""
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if kind is list:
            return [self.value(item) for item in value]
        if kind in (tuple, torch.Size):
            return {"tuple" if kind is tuple else "size": [self.value(item) for item in value]}
        if kind is dict:
            return {"dict": [[self.value(k), self.value(v)] for k, v in value.items()]}
        if kind is Node:
            return {"node": self.index[value]}
        if kind is slice:
            return {"slice": [self.value(part) for part in (value.start, value.stop, value.step)]}
        if kind is range:
            return {"range": [value.start, value.stop, value.step]}
        if kind is complex:
            return {"complex": [repr(value.real), repr(value.imag)]}
        if kind is bytes:
            return {"bytes": value.hex()}
        if value is Ellipsis:
            return {"ellipsis": True}
        if (name := constant_name(value)) is not None:
            return {"torch": name}
        if kind is torch.device:
            return {"device": str(value)}
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if callable(value):
            return {"function": path_of(value)}
        raise GraphError(f"a value of type {kind.__name__} can't be written")


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind in (tuple, list):
        return all(map(_is_plain, value))
    return value is None or kind in (bool, int, float, str)


class _Reader:
    def __init__(self, document: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        self.document = document
        self.tensors = tensors
        self.made: dict[tuple[str, str], Any] = {}
        self.nodes: list[Node] = []

    def module(self) -> GraphModule:
        graph = Graph()
        for record in self.document["nodes"]:
            try:
                self.nodes.append(self.node(graph, record))
            except GraphError as error:
                raise GraphError(f"node {record.get('name')!r}: {error}") from None
        root = nn.Module()
        root.training = bool(self.document["training"])
        for target, record in self.document["state"].items():
            self.put(root, target, record)
        module = GraphModule(root, graph, str(self.document["class"]))
        module.meta.update({key: self.value(value) for key, value in self.document["meta"].items()})
        check(graph, module)
        return module

    def node(self, graph: Graph, record: dict[str, Any]) -> Node:
        op, target = record["op"], record["target"]
        args = tuple(self.value(value) for value in record["args"])
        kwargs = {str(key): self.value(value) for key, value in record["kwargs"].items()}
        if op == "call_function":
            target = find_target(target)
            if target is getattr and not (len(args) > 1 and isinstance(args[1], str) and not args[1].startswith("_")):
                raise GraphError("only public attributes can be read by getattr")
        elif op == "call_method" and not is_allowed_method(target):
            raise GraphError(f"it calls the method {target!r}, which tensors don't have or files may not call")
        node = graph._insert_named(op, target, args, kwargs, record["name"])
        node.meta.update({key: self.value(value) for key, value in record["meta"].items()})
        return node

    def put(self, root: nn.Module, target: str, record: dict[str, Any]) -> None:
        owner = root
        *path, last = target.split(".")
        for part in path:
            child = owner._modules.get(part)
            if child is None:
                child = nn.Module()
                child.training = root.training
                owner.add_module(part, child)
            owner = child
        if "module" in record:
            owner.add_module(last, self.layer(record["module"]))
            return
        value = self.value(record["value"])
        if "persistent" in record:
            owner.register_buffer(last, value, persistent=bool(record["persistent"]))
        else:
            setattr(owner, last, value)

    def layer(self, record: dict[str, Any]) -> nn.Module:
        if "graph" in record:
            inner = _Reader(record["graph"], self.tensors)
            inner.made = self.made
            return inner.module()
        cls = find_target(record["class"])
        if not (isinstance(cls, type) and issubclass(cls, nn.Module)):
            raise GraphError(f"{record['class']!r} is no class of modules")
        made = object.__new__(cls)
        nn.Module.__init__(made)
        made.training = bool(record["training"])
        for key, value in record["settings"].items():
            if key in _OF_ALL_MODULES or hasattr(nn.Module, key):
                raise GraphError(f"{key!r} is no setting of a {cls.__name__}")
            made.__dict__[key] = self.value(value)
        for key, value in record["parameters"].items():
            made.register_parameter(key, None if value is None else self.value(value))
        for key, value in record["buffers"].items():
            made.register_buffer(key, None if value is None else self.value(value), persistent=key not in record["passing"])
        for key, value in record["modules"].items():
            made.add_module(key, None if value is None else self.layer(value))
        if isinstance(made, nn.RNNBase):
            made._init_flat_weights()
        return made

    def value(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if not isinstance(value, dict):
            return value
        kind, part = next(iter(value.items()), ("nothing", None))
        if kind in ("parameter", "tensor"):
            return self.tensor(value, kind)
        return _READ[kind](self, part)

    def tensor(self, record: dict[str, Any], kind: str) -> torch.Tensor:
        known = self.made.get((kind, record[kind]))
        if known is None:
            data = self.tensors[record[kind]]
            if record.get("channels_last"):
                data = data.contiguous(memory_format=torch.channels_last)
            grad = bool(record["requires_grad"])
            known = nn.Parameter(data, requires_grad=grad) if kind == "parameter" else data.requires_grad_(grad)
            self.made[(kind, record[kind])] = known
        return known

    def argument(self, index: int) -> Node:
        if index < 0:
            raise GraphError("a node has a negative number")
        return self.nodes[index]


_READ: dict[str, Any] = {
    "float": lambda reader, part: math.nan if part == "nan" else float(part),
    "tuple": lambda reader, part: tuple(map(reader.value, part)),
    "size": lambda reader, part: torch.Size(map(reader.value, part)),
    "dict": lambda reader, part: {reader.value(k): reader.value(v) for k, v in part},
    "node": lambda reader, part: reader.argument(part),
    "slice": lambda reader, part: slice(*map(reader.value, part)),
    "range": lambda reader, part: range(*part),
    "complex": lambda reader, part: complex(*map(float, part)),
    "bytes": lambda reader, part: bytes.fromhex(part),
    "ellipsis": lambda reader, part: ...,
    "torch": lambda reader, part: find_constant(part),
    "device": lambda reader, part: torch.device(part),
    "function": lambda reader, part: find_target(part),
}
