"""Callbacks that attach the monitor to training loops of other libraries."""
