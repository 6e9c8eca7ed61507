"""How fast, how well and at what price: times in paired rounds, accuracy, memory and energy."""
