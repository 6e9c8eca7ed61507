"""A GAN of digits, for lab 05: a network that makes them, and one that tells them from the data."""

from torch import Tensor, nn

from labkit.training.models import check_images


class Generator(nn.Module):
    """Makes 8 x 8 digits out of noise, for a GAN.

    Takes N x noise and gives images, N x 1 x 8 x 8 in [0, 1].
    """

    def __init__(self, noise: int = 16) -> None:
        super().__init__()
        self.noise = noise
        self.layers = nn.Sequential(
            nn.Linear(noise, 32 * 2 * 2),
            nn.ReLU(),
            nn.Unflatten(1, (32, 2, 2)),
            nn.ConvTranspose2d(32, 16, kernel_size=4, stride=2, padding=1),  # 2 x 2 -> 4 x 4
            nn.ReLU(),
            nn.ConvTranspose2d(16, 1, kernel_size=4, stride=2, padding=1),  # 4 x 4 -> 8 x 8
            nn.Sigmoid(),
        )

    def forward(self, noise: Tensor) -> Tensor:
        return self.layers(noise)


class Discriminator(nn.Module):
    """Tells 8 x 8 digits of the data from those of a generator.

    Takes images, N x 1 x 8 x 8, and gives logits, N x 1: above 0 means "of the data". Logits, not
    probabilities, because ``binary_cross_entropy`` is banned under CUDA autocast and
    ``binary_cross_entropy_with_logits`` is not.

    Raises:
        ValueError: the images have another shape.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, kernel_size=3, stride=2, padding=1),  # 8 x 8 -> 4 x 4
            nn.LeakyReLU(0.2),
            nn.Conv2d(16, 32, kernel_size=3, stride=2, padding=1),  # 4 x 4 -> 2 x 2
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(32 * 2 * 2, 1),
        )

    def forward(self, images: Tensor) -> Tensor:
        check_images(images, ("N", 1, 8, 8), "It reads digits() as they come.")
        return self.layers(images)
