"""Checks of lab 04: the scaler, master weights, and reading a scaler's code."""
