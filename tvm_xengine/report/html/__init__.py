"""One HTML file that shows a plan: no network, no dependency, readable on a phone and in the dark.

The pictures are SVG that is written here, and a page of plain JavaScript looks up what is under the
pointer. No Python package carries a plotting library for the browser in less than 1.5 MB, and SVG
takes the colours of the page, scales to any width, and needs no script to be read.
"""
