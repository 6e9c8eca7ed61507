"""Lab 14: dtypes of a training step in Keras and JAX, a port to PyTorch, and a scale under jit."""
