"""``tvm-xengine train`` of several models."""
