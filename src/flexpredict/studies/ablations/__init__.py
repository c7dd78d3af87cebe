"""The paper's ablations at any scale, with several seeds and error bars."""
