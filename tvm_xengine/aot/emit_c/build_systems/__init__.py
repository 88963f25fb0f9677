"""The files that a build system finds a package by."""
