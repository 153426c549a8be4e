"""The explanation: attention held fixed, the flow that follows, and the classification models trained to check both."""
