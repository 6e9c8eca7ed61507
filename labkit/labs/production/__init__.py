"""Lab 15: experiments, checkpoints, faults, parity and staged rollouts of a change of precision."""
