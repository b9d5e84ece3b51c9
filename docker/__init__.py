"""Container images: what is in them (docker/images.yaml), how engines build them, and sessions run inside."""
