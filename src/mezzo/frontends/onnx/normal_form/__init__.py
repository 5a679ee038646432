"""Normal form: what exporters write differently for the same network, brought to one spelling before it is planned."""
