"""For instructors: hand out the labs, and grade what comes back."""
