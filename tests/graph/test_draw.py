"""Pictures of graphs: well formed, every edge drawn, arrows downwards, boxes apart."""

from __future__ import annotations

import re
import xml.etree.ElementTree as xml

import pytest
import torch

import framecap
from examples.resnet50 import resnet50
from framecap.graph import Graph, GraphModule, draw_dot, draw_svg
from framecap.graph.passes import propagate_shapes

SVG = "{http://www.w3.org/2000/svg}"


def rectangles(text: str) -> list[tuple[float, float, float, float]]:
    found = [r for g in xml.fromstring(text).iter(f"{SVG}g") for r in g.findall(f"{SVG}rect")]
    return [tuple(float(r.attrib[key]) for key in ("x", "y", "width", "height")) for r in found]  # type: ignore[misc]


def arrows(text: str) -> list[list[float]]:
    return [[float(n) for n in re.findall(r"-?[\d.]+", p.attrib["d"])] for p in xml.fromstring(text).iter(f"{SVG}path")]


def check_layout(text: str) -> None:
    boxes = rectangles(text)
    for i, (x, y, width, _) in enumerate(boxes):
        assert x >= 0
        for x2, y2, width2, _ in boxes[i + 1 :]:
            assert y != y2 or x + width <= x2 or x2 + width2 <= x
    assert all(numbers[1] < numbers[-1] for numbers in arrows(text))


@pytest.fixture(scope="module")
def resnet() -> GraphModule:
    model = resnet50(num_classes=10, width=16).eval()
    images = torch.randn(1, 3, 64, 64)
    module = framecap.capture(model, images, is_leaf=framecap.no_leaves)
    propagate_shapes(module, images, fake=True)
    return module


def test_a_small_graph() -> None:
    graph = framecap.capture(lambda x: (x + 1).relu() * x).graph
    text = draw_svg(graph)
    check_layout(text)
    titles = [t.text for t in xml.fromstring(text).iter(f"{SVG}text")]
    assert titles == ["x", "operator.add", "relu", "operator.mul", "output"]
    assert len(arrows(text)) == 5
    dot = draw_dot(graph)
    assert dot.count("->") == 5 and 'label="operator.add"' in dot and "n0 -> n3;" in dot


def test_a_large_graph_is_drawn_by_module(resnet: GraphModule) -> None:
    assert len(resnet.graph.nodes) > 400
    text = draw_svg(resnet.graph)
    check_layout(text)
    assert len(rectangles(text)) == 25
    assert "layer3.5" in text and "10 operators, float32[1, 256, 4, 4]" in text


@pytest.mark.parametrize("depth", [1, 2, 3, 9])
def test_every_depth_has_arrows_downwards(resnet: GraphModule, depth: int) -> None:
    text = draw_svg(resnet.graph, depth=depth)
    check_layout(text)
    # What can be reached in the graph can be reached in the picture: every box but the first has one above it.
    boxes = rectangles(text)
    ends = {(numbers[-2], numbers[-1]) for numbers in arrows(text)}
    reached = [any(abs(x + width / 2 - ex) < 1 and y == ey for ex, ey in ends) for x, y, width, _ in boxes]
    assert reached.count(False) == 1


def test_text_that_means_something_in_xml_and_dot() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_method('<&"\\\x00>', (x,)))
    assert '<&"\\\ufffd>' in [t.text for t in xml.fromstring(draw_svg(graph)).iter(f"{SVG}text")]
    assert r'label="<&\"\\' in draw_dot(graph)


def test_an_empty_graph() -> None:
    graph = Graph()
    graph.output(None)
    check_layout(draw_svg(graph))
