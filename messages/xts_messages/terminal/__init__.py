"""What all commands have in common: arguments, tables, the terminal."""
