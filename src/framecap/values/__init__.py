"""What the symbolic interpreter knows of the program's objects: one file a family of types."""
