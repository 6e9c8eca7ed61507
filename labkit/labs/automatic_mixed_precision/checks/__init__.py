"""Checks of lab 05: op lists, loops, and the pull request."""
