"""What belongs to lab 05 alone."""
