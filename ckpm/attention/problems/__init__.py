"""Problems: a builder, checks by the rules of the matrix, and shapes of the testing matrix."""
