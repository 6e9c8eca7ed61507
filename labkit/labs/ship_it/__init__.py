"""What lab 17 stands on: a packed network and its bytes, the network to ship, and the score."""
