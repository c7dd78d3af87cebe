"""What a step costs, reckoned from the sizes of its networks: floating-point operations, memory, time."""
