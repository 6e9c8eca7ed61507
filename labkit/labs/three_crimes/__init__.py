"""Lab 01: five runs, the evidence each leaves, and the checks that judge the case."""
