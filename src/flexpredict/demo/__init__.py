"""`flexpredict demo`: sin-cos against stochastic positions, an untrained encoder and raw pixels, in six minutes."""

from flexpredict.demo.recipe import ARMS, PROTOCOL, RECIPE, SEEDS, STEPS, Protocol, recipe_values
from flexpredict.demo.running import run_demo

__all__ = ["ARMS", "PROTOCOL", "RECIPE", "SEEDS", "STEPS", "Protocol", "recipe_values", "run_demo"]
