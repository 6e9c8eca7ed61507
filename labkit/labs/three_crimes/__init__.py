"""What belongs to lab 01 alone."""
