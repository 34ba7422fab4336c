"""The contract's clients in Go, Java and JavaScript, and ``toolchains``, which fetches and builds them."""
