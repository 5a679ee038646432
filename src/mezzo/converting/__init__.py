"""One model from reading to a checked result, at the version that it takes, with what its file told heeded."""
