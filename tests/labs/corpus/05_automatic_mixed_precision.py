# Answers to lab 05 that the author of its checks had not foreseen: see tests/corpus.py.

# %% right fit: float(loss), of which torch warns
fit = changed("loss.item()", "float(loss)")

# %% wrong fit: a scaler for a device that is not there
fit = changed(
    "GradScaler(device, enabled=dtype is torch.float16)",
    "GradScaler(enabled=dtype is torch.float16)",
)

# %% wrong gan-step: the fake is detached once too often
#    says: No inf checks were recorded
#    never: One graph was walked twice
gan_step = changed(
    "on_fake = discriminator(fake)\n", "on_fake = discriminator(fake.detach())\n"
)
