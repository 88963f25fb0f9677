"""What needs a GPU: run on one by `pytest -m gpu tests/gpu`, and on the fake by `test_fake_gpu`."""
