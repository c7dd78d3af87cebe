"""`flexpredict demo`: sin-cos against stochastic positions, an untrained encoder and raw pixels, in six minutes."""
