"""Kernels that a vendor's library computes, prepared and called like those generated here."""
