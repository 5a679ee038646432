"""One model from reading to a checked result, at the opset that it takes, with what its file told heeded."""
