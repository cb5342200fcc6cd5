"""What the machine has and allows, as its kernel tells."""
