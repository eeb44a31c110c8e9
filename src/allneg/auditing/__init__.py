"""The facts of a graph that look wrong, and what may be there twice."""
