"""Image encoders of all kinds behind one interface."""
