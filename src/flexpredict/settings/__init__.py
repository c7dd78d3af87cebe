"""Everything that can be set, with its default, its range and what does not go together. Imports no torch."""
