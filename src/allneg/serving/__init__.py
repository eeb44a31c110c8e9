"""Run → answers by name."""
