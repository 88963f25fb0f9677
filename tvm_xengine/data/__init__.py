"""Training data: arrays from files, image folders, Python functions, and the digits of scikit-learn."""
