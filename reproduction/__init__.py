"""Writes docs/results.md, docs/findings.md and figure 1 from the result files in results/."""
