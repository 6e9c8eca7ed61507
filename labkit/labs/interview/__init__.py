"""What belongs to lab 16 alone."""
