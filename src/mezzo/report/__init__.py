"""Says what was decided: tables and sentences for people, one JSON document for machines. Writes nothing itself."""
