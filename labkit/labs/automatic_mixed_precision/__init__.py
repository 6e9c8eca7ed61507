"""Lab 05: automatic mixed precision; checks, the map of dtypes, the order of calls."""
