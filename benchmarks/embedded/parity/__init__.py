"""Exported C on every target beside PyTorch: is it as exact?"""
