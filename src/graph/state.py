"""The state a graph uses: objects at dotted paths below a root, and how another module takes them over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from .errors import GraphError

Root = nn.Module | dict[str, Any]


def why_not_found(root: Any, target: str) -> tuple[str | None, Any]:
    """(None, the object at ``target``), or (why there is none, None). root: an object, or a dict with whole targets."""
    if isinstance(root, dict):
        if target not in root:
            return f"the {len(root)} objects given as root have no {target!r}", None
        return None, root[target]
    owner: Any = root
    path = ""
    for part in target.split("."):
        try:
            owner = getattr(owner, part)
        except AttributeError:
            return f"{path or 'the root'}, of type {type(owner).__name__}, has no attribute {part!r}", None
        path = f"{path}.{part}" if path else part
    return None, owner


def find(root: Any, target: str) -> Any:
    """The object at a dotted path. Raises GraphError."""
    problem, value = why_not_found(root, target)
    if problem is not None:
        raise GraphError(f"the graph uses {target!r}, but {problem}")
    return value


def adopt(module: nn.Module, root: Root, targets: Iterable[str]) -> None:
    """Make ``module`` have the objects of ``root`` under ``targets``, by reference; nothing of root's is changed.

    Modules on the way to a target become plain ones with the same ``training``. Parameters, buffers (persistent or not)
    and plain attributes stay what they were, in the order they have in root; tensors of a dict become buffers. Raises
    GraphError.
    """
    made: dict[int, tuple[nn.Module, Any]] = {id(module): (module, root)}
    # Short targets first: a module that is used as a whole brings what lies in it.
    for target in sorted(dict.fromkeys(targets), key=lambda target: target.count(".")):
        value = find(root, target)
        owner, source = module, root
        *path, last = target.split(".")
        for depth, part in enumerate(path):
            source = _child(root, source, path[: depth + 1])
            if not hasattr(owner, part):
                if source is not None and not isinstance(source, nn.Module):
                    # An object that isn't a module is shared: a copy would miss later changes.
                    _put(owner, part, source, owner=None)
                else:
                    container = nn.Module()
                    container.training = module.training if source is None else source.training
                    made[id(container)] = (container, source)
                    owner.add_module(part, container)
            owner = getattr(owner, part)
        if id(owner) in made:
            _put(owner, last, value, source if isinstance(source, nn.Module) else None)
        elif isinstance(root, dict) and isinstance(owner, nn.Module) and getattr(owner, last, None) is not value:
            raise GraphError(f"{target!r} is another object than {last!r} of the {type(owner).__name__} it lies in")
    for container, source in made.values():
        if isinstance(source, nn.Module):
            _order_as(container, source)


def _order_as(container: nn.Module, source: nn.Module) -> None:
    """Give parameters, buffers and modules the order that they have in ``source``, which state_dict shows."""
    for table in ("_parameters", "_buffers", "_modules"):
        held, order = getattr(container, table), getattr(source, table)
        held.update({name: held.pop(name) for name in order if name in held})


def in_order(module: nn.Module, targets: Iterable[str]) -> list[str]:
    """Targets sorted by the place of what they name in the module hierarchy."""

    def place_of(target: str) -> list[int]:
        owner: Any = module
        places = []
        for part in target.split("."):
            names: list[str] = []
            if isinstance(owner, nn.Module):
                names = [*owner._parameters, *owner._buffers, *owner._modules]
            places.append(names.index(part) if part in names else len(names))
            owner = getattr(owner, part)
        return places

    return sorted(dict.fromkeys(targets), key=place_of)


def _child(root: Root, source: Any, path: list[str]) -> Any:
    """What stands in ``root`` on the way to a target; None where a dict has only the target itself."""
    if isinstance(root, dict):
        return root.get(".".join(path))
    return getattr(source, path[-1])


def _put(module: nn.Module, name: str, value: Any, owner: nn.Module | None) -> None:
    """Set an attribute of ``module`` to what it is in ``owner``; without an owner, a tensor becomes a buffer."""
    tensor = isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter)
    if tensor and (owner is None or name in owner._buffers):
        persistent = owner is None or name not in owner._non_persistent_buffers_set
        module.register_buffer(name, value, persistent=persistent)
    elif isinstance(value, nn.Module):
        module.add_module(name, value)
    else:
        setattr(module, name, value)


def place(module: nn.Module, target: str, value: Any) -> None:
    """Set the state at a dotted path of ``module`` alone: what it shares with other modules stays as it is there.

    Raises GraphError if the path leads through a module that is more than a container.
    """
    owner, path = module, ""
    *parts, last = target.split(".")
    for part in parts:
        child = owner._modules.get(part)
        path = f"{path}.{part}" if path else part
        if child is not None and type(child) is not nn.Module:
            raise GraphError(f"{target!r} can't be set: {path!r} is a {type(child).__name__}, which is shared")
        child = _own_copy(child) if child is not None else nn.Module()
        owner._modules[part] = child
        owner = child
    for table in (owner._parameters, owner._buffers, owner._modules):
        table.pop(last, None)
    _put(owner, last, value, owner=None)


def prune(module: nn.Module, targets: Iterable[str]) -> None:
    """Take out of ``module``, of the state made of containers, parameters and buffers, what no target leads to."""
    needed: dict[str, list[str]] = {}
    for target in targets:
        first, _, rest = target.partition(".")
        needed.setdefault(first, []).append(rest)
    for table in (module._parameters, module._buffers, module._modules):
        for name in [name for name in table if name not in needed]:
            del table[name]
            module._non_persistent_buffers_set.discard(name)
    for name, rests in needed.items():
        child = module._modules.get(name)
        if child is not None and type(child) is nn.Module and "" not in rests:
            module._modules[name] = child = _own_copy(child)
            prune(child, rests)


def _own_copy(container: nn.Module) -> nn.Module:
    """A container with the same contents, to be changed without changing the other."""
    made = nn.Module()
    made.__dict__.update({k: v.copy() if isinstance(v, (dict, set)) else v for k, v in container.__dict__.items()})
    return made
