"""The figures of lab 12."""
