"""Problems: what a call asks for, step by step, by the rules of the matrix and as its shapes."""
