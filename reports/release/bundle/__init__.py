"""What a release is: a folder and an archive of it, and how both are verified."""
