"""Errors of framecap.graph."""


class GraphError(RuntimeError):
    """A graph is not well formed, or an edit would make it so; the message names the node."""
