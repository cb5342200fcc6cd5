"""The version of all packages and commands; a test holds it against pyproject.toml and CMakeLists.txt."""

__version__ = "0.2.0"
