"""What belongs to lab 04 alone."""
