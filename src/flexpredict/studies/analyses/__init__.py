"""Figures of what stochastic positions do, with the numbers behind them: one file for each."""
