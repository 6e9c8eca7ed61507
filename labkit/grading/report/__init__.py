"""From verdicts to points, tables, feedback pages and the summary of a class."""
