"""Lab 07: the bytes of a training step, out-of-memory errors, collectives, divided optimizers."""
