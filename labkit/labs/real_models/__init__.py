"""Lab 13: ResNet, BERT, GPT and GAN where 16 bits break them; checks and CrashRig."""
