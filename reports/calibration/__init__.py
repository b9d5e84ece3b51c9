"""What a run on a GPU leaves, as one archive from which the model and the references are calibrated."""
