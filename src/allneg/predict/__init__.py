"""Answers of a trained run by name, without any web code."""
