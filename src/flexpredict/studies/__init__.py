"""The paper's questions asked again: ablations and analyses."""
