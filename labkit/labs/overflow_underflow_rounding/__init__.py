"""Lab 03: overflow, underflow, rounding; checks and ReachTheSum."""
