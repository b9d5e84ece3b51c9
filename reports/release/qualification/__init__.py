"""The decision about a release: stages, their records, waivers, the verdict."""
