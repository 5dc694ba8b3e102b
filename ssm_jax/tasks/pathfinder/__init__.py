"""Pathfinder: whether a dashed curve connects two dots."""
