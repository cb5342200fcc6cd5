"""The documents of this repository: their checks, the site and the manual pages made from them and from the sources."""
