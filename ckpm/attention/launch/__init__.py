"""Problems on a device: buffers, pools, libraries opened, kernels launched."""
