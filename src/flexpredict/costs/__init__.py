"""What a step costs, estimated from the sizes of its networks: floating-point operations, memory, time."""
