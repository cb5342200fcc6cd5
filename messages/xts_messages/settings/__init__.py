"""Settings and configuration files: their declaration, and what is said of mistakes in them."""
