"""Lab 08: the mechanisms of FP8 and FP4 training; checks, BlockBench, recorded training."""
