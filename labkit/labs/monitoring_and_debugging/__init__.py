"""Lab 11: alarms for a training run, the first operator that overflows, and what must stay FP32."""
