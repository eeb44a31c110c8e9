"""The vectors of a run in the formats of other programs."""
