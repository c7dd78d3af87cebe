"""One file for each figure: pictures of what stochastic positions do, with the numbers behind them."""
