"""Lab 12: which format for which layer, for training, serving and rollouts, with evidence."""
