"""Language models in OpenVINO's own format, as OpenVINO GenAI runs them."""
