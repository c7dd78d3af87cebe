"""The paper's ablations: each of its questions asked again, at any scale, with several seeds and error bars."""
