"""Made by `generate.py` from `proto/`."""
