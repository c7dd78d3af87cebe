"""All settings: their defaults, ranges and incompatible combinations. Imports no torch."""
