"""What belongs to lab 06 alone."""
