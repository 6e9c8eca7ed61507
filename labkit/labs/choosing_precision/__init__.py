"""Lab 12: sensitivity of layers, bits for each, a strategy for a device, a decision on record."""
