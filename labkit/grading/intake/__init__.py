"""From what was handed in to submissions: archives, notebooks, the roster, who is who."""
