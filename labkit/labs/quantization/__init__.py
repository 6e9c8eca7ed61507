"""Lab 09: integers in place of floats, GPTQ, fine-tuning in four bits; checks and ClipDial."""
