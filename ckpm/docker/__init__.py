"""Build the container images of docker/images.yaml, and run sessions inside."""
