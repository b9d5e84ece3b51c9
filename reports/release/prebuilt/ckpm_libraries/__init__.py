"""Prebuilt libraries of CK's batch prefill: ``ARCH/UPSTREAM/libckpm.so`` with its manifest, and their provenance.

``ckpm`` finds this package when it is installed, and compares each library with the sha256 in its manifest.
"""

__version__ = "0.1.0"
