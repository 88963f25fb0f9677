"""The proven optimum of small graphs: shortest paths over what is resident where (A*)."""
