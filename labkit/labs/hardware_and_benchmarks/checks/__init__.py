"""Checks of lab 06: facts of a device, and honest benchmarks."""
