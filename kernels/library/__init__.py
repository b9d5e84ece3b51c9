"""From a selection to a library: the request, its plan, SCons, the manifest."""
