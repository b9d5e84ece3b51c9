"""The build of a library from a selection: the request, its plan, SCons, the manifest."""
