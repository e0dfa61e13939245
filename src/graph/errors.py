"""The error of framecap.graph."""


class GraphError(RuntimeError):
    """A graph isn't well formed, or an edit would make it so. The message names the node and what was expected."""
