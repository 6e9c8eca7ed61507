"""The NaN detective: runs that fail, what can be measured of them, and the queries allowed."""
