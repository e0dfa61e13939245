"""A region under construction: recorded operators, guards, effects; metadata on demand."""
