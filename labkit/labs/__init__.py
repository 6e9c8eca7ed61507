"""What belongs to one lab: a folder each, named as its notebook after the number."""
