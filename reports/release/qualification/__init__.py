"""What decides whether there is a release: stages, their records, waivers, the verdict."""
