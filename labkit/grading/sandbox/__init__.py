"""Where students' code runs: bubblewrap, the server inside it, limits and the watch over them."""
