"""Checks of the question bank's own coding questions, a module a topic."""
