"""The symbolic interpreter: frames, the tracer of a region, wrapping of real objects, the code that runs a region."""
