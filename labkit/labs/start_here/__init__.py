"""Lab 00: the one check that shows how checks work."""
