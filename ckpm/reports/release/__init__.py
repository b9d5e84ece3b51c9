"""Release qualification: every stage on one commit, the verdict, and a bundle whose every byte can be traced."""
