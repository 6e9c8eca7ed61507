"""Lab 16: the port of a GPT to FP16 and its checks."""
