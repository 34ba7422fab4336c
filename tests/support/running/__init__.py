"""How the suite runs: its order, its children, what it patches and leaves behind, where things are."""
