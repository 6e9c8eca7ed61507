"""A folder a lab, named as its notebook after the number; ``engine`` serves all of them."""
