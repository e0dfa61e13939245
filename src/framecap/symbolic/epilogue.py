"""The code that runs a region: call the graph, replay the effects, rebuild what the frame needs, name the exit.

It is generated as one Python function per variant. Its parameters are the outputs of the variant's guard program
(objects that the guards have just reached), its result is what the in-frame stub expects:
``(target, values for the stack, values for locals ...)``.
"""

from __future__ import annotations

import keyword
import math
from typing import TYPE_CHECKING, Any

from framecap.guards import Source

from ..tracing.region import Effect, Input, Op
from ..values.base import Value
from ..values.constant import TORCH_CONSTANTS
from ..values.instance import DELETED
from ..values.mapping import DictValue
from ..values.sequence import ListValue

if TYPE_CHECKING:
    from .tracer import Namespace


class Emitter:
    """Collects the lines of the function, its parameters, the graph outputs it uses, and the objects it names."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.inputs: dict[Source, str] = {}
        self.outputs: dict[Op, str] = {}
        self.objects: dict[str, Any] = {}
        self.object_names: dict[int, str] = {}
        self.names: dict[int, str] = {}
        self.kept: list[Value] = []
        self.active: set[int] = set()
        self.count = 0

    # Names

    def fresh(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def value(self, value: Value) -> str:
        """A name or literal for ``value``; one object is built once."""
        known = self.names.get(id(value))
        if known is not None:
            return known
        text = value.emit(self)
        known = self.names.get(id(value))
        if known is not None:
            return known
        if not text.isidentifier() and not _is_literal(text):
            name = self.fresh()
            self.line(f"{name} = {text}")
            text = name
        self.names[id(value)] = text
        self.kept.append(value)
        return text

    def known(self, value: Value) -> str | None:
        return self.names.get(id(value))

    def line(self, text: str) -> None:
        self.lines.append(text)

    def statement(self, expression: str, value: Value | None = None) -> str:
        """Assign ``expression`` to a new name, which stands for ``value``."""
        name = self.fresh()
        self.line(f"{name} = {expression}")
        if value is not None:
            self.names[id(value)] = name
            self.kept.append(value)
        return name

    def container(self, value: Value, empty: str, fill: Any) -> str:
        """Make an object first and fill it then, so that it can contain itself."""
        name = self.statement(empty, value)
        fill(name)
        return name

    def input(self, source: Source) -> str:
        """The parameter that holds the object found at ``source`` on entry."""
        return self.inputs.setdefault(source, f"i{len(self.inputs)}")

    def reference(self, ref: Op | Input) -> str:
        """A tensor or number of the graph, or an input of it."""
        if isinstance(ref, Input):
            return self.input(ref.source)
        return self.outputs.setdefault(ref, f"o{len(self.outputs)}")

    def namespace(self, space: Namespace) -> str:
        assert space.source is not None
        return self.input(space.source)

    def object(self, value: Any, hint: str) -> str:
        """A name for a real object that the code refers to."""
        known = self.object_names.get(id(value))
        if known is not None:
            return known
        base = "".join(c if c.isalnum() else "_" for c in hint) or "object"
        if not base.isidentifier() or keyword.iskeyword(base):
            base = f"_{base}"
        name = f"{base}_{len(self.objects)}"
        self.objects[name] = value
        self.object_names[id(value)] = name
        return name

    def constant(self, value: Any) -> str:
        """A literal for an immutable object, or a name for it."""
        kind = type(value)
        if value is None or kind in (bool, int, str, bytes) or value is Ellipsis:
            return repr(value)
        if kind is float and math.isfinite(value):
            return repr(value)
        if kind is range:
            return self.object(value, "range")
        if kind in TORCH_CONSTANTS:
            return self.object(value, kind.__name__)
        return self.object(value, kind.__name__)

    # Effects

    def effect(self, effect: Effect) -> None:
        """Code for one mutation."""
        getattr(self, f"_effect_{effect.kind}")(*effect.operands)

    def _effect_setattr(self, owner: Value, name: str, value: Value) -> None:
        put = self.object(object.__setattr__, "object_setattr")
        self.line(f"{put}({self.value(owner)}, {name!r}, {self.value(value)})")

    def _effect_delattr(self, owner: Value, name: str) -> None:
        self.line(f"{self.object(object.__delattr__, 'object_delattr')}({self.value(owner)}, {name!r})")

    def _effect_setitem(self, owner: ListValue | DictValue, key: Value, value: Value) -> None:
        cls: Any = owner.cls
        put = self.object(cls.__setitem__, "setitem")
        self.line(f"{put}({self.value(owner)}, {self.value(key)}, {self.value(value)})")

    def _effect_delitem(self, owner: ListValue | DictValue, key: Value) -> None:
        cls: Any = owner.cls
        remove = self.object(cls.__delitem__, "delitem")
        self.line(f"{remove}({self.value(owner)}, {self.value(key)})")

    def _effect_method(self, owner: Any, name: str, *arguments: Value) -> None:
        method = self.object(getattr(owner.cls, name), name)
        self.line(f"{method}({', '.join([self.value(owner), *(self.value(a) for a in arguments)])})")

    def _effect_global(self, space: Namespace, name: str, value: Any) -> None:
        target = f"{self.namespace(space)}[{name!r}]"
        self.line(f"del {target}" if value is DELETED else f"{target} = {self.value(value)}")

    def _effect_cell(self, cell: Value, value: Value | None) -> None:
        target = f"{self.value(cell)}.cell_contents"
        self.line(f"del {target}" if value is None else f"{target} = {self.value(value)}")


def _is_literal(text: str) -> bool:
    return (
        text[:1] in "'\"-0123456789" or text in ("None", "True", "False", "Ellipsis", "()") or text[:2] in ("b'", 'b"')
    )
