"""The workers' process, and what workers are told in the form that they read."""
