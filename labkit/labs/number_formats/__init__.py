"""Lab 02: build a number system; checks and the FormatExplorer."""
